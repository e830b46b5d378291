// Plots of commits over time: a bar chart with axes and a readout, and a sparkline.

import { HOUR, series, ticks, total } from "./buckets.js";
import { h, svg } from "./dom.js";
import { axisNumber, bytes, clock, count, duration, number } from "./format.js";

const HEIGHT = 236;
const MARGIN = { top: 26, right: 8, bottom: 24, left: 56 };

const MEASURES = {
  files: { name: "Files", unit: "files", base: 10, label: axisNumber },
  records: { name: "Records", unit: "records", base: 10, label: axisNumber },
  bytes: { name: "Bytes", unit: "bytes", base: 1024, label: bytes },
  transactions: { name: "Transactions", unit: "transactions", base: 10, label: axisNumber },
};

const RANGES = [
  { name: "1 hour", seconds: HOUR, step: 60, tick: HOUR / 6 },
  { name: "6 hours", seconds: 6 * HOUR, step: 300, tick: HOUR },
];

// The reader's choices; they survive updates and apply to all connectors.
const chosen = { measure: null, range: RANGES[0], bar: null };

/** The plot of a connector. `redraw` is called when the reader changes a choice. */
export function plot(connector, width, redraw) {
  const { buckets, now } = connector;
  const { measures, measure } = available(buckets);
  const { range } = chosen;
  const bars = series(buckets, now, range.seconds, range.step);
  return h(
    "section",
    { "aria-labelledby": "committed-title" },
    h(
      "div",
      { class: "section-head" },
      h("h2", { id: "committed-title" }, "Committed"),
      choices(
        "Measure",
        measures.map((name) => [name, MEASURES[name].name]),
        measure,
        (name) => {
          chosen.measure = name;
          redraw();
        },
      ),
      choices(
        "Time",
        RANGES.map((one) => [one, one.name]),
        range,
        (one) => {
          chosen.range = one;
          chosen.bar = null;
          redraw();
        },
      ),
    ),
    readout(bars, range, measures, now),
    drawing(bars, measure, range, now, width, redraw),
  );
}

/** A sparkline of the last hour's files, or of records if the connector counts no files. */
export function sparkline(buckets, now) {
  const width = 90;
  const height = 20;
  const bars = series(buckets, now, HOUR, 120);
  const measure = total(bars).files ? "files" : "records";
  const most = Math.max(...bars.map((bar) => bar[measure]), 1);
  const each = width / bars.length;
  return svg(
    "svg",
    { class: "sparkline", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
    bars.map(
      (bar, at) =>
        bar[measure] > 0 &&
        column("bar", at * each, each - 0.5, height, (bar[measure] / most) * (height - 2)),
    ),
  );
}

function available(buckets) {
  const sum = total(buckets);
  // Only some connectors count files and bytes, and only sources have transactions; records are always known.
  const measures = Object.keys(MEASURES).filter((name) => name === "records" || sum[name] > 0);
  const measure = measures.includes(chosen.measure) ? chosen.measure : measures[0];
  return { measures, measure };
}

function choices(label, options, current, choose) {
  return h(
    "div",
    { class: "choices", role: "group", "aria-label": label },
    options.map(([value, name]) =>
      h(
        "button",
        { type: "button", "aria-pressed": String(value === current), onclick: () => choose(value) },
        name,
      ),
    ),
  );
}

function readout(bars, range, measures, now) {
  const bar = bars[chosen.bar];
  const shown = bar ?? total(bars);
  const parts = [
    measures.includes("files") && count(shown.files, "file"),
    count(shown.records, "record"),
    measures.includes("bytes") && bytes(shown.bytes),
    measures.includes("transactions") && count(shown.transactions, "transaction"),
  ];
  const when = bar ? `${clock(bar.start)}–${clock(bar.end)}` : `Last ${spoken(range.name)}`;
  return h(
    "p",
    { class: "readout", id: "readout", "aria-live": bar ? "polite" : "off" },
    h("span", { class: "muted" }, `${when}${bar?.end > now ? ", so far" : ""}: `),
    parts.filter(Boolean).join(" · "),
  );
}

function drawing(bars, measure, range, now, width, redraw) {
  const { base, label, unit } = MEASURES[measure];
  const marks = ticks(Math.max(...bars.map((bar) => bar[measure])), 4, base);
  const area = areaOf(width, bars.length, marks.at(-1), bars[0].start, range.seconds);
  const isEmpty = bars.every((bar) => bar[measure] === 0);
  return svg(
    "svg",
    {
      class: "plot",
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      tabindex: "0",
      role: "img",
      "aria-label": `${unit} committed in the last ${spoken(range.name)}; arrow keys read them out`,
      "aria-describedby": "readout",
      ...listeners(bars.length, area, redraw),
    },
    svg("text", { class: "tick", x: 0, y: 11 }, `${unit} per ${spoken(duration(range.step))}`),
    marks.map((mark) => valueMark(mark, area, label)),
    timeMarks(bars, width < 500 ? range.tick * 2 : range.tick).map((at) => timeMark(at, area)),
    chosen.bar !== null && svg("rect", { class: "cursor", ...area.slot(chosen.bar) }),
    bars.map((bar, at) => bar[measure] > 0 && barOf(bar, at, measure, now, area)),
    isEmpty &&
      svg(
        "text",
        { class: "nothing", x: area.middle, y: area.bottom - 80, "text-anchor": "middle" },
        `no ${unit} committed in the last ${spoken(range.name)}`,
      ),
  );
}

/** Coordinates of the drawing. */
function areaOf(width, bars, most, start, seconds) {
  const inner = {
    width: Math.max(width - MARGIN.left - MARGIN.right, 50),
    height: HEIGHT - MARGIN.top - MARGIN.bottom,
  };
  const bottom = MARGIN.top + inner.height;
  const each = inner.width / bars;
  return {
    each,
    bottom,
    left: MARGIN.left,
    right: MARGIN.left + inner.width,
    middle: MARGIN.left + inner.width / 2,
    x: (at) => MARGIN.left + ((at - start) / seconds) * inner.width,
    y: (value) => bottom - (value / most) * inner.height,
    slot: (bar) => ({ x: MARGIN.left + bar * each, y: MARGIN.top, width: each, height: inner.height }),
    barAt: (x) => Math.floor((x - MARGIN.left) / each),
  };
}

function listeners(bars, area, redraw) {
  const select = (bar) => {
    chosen.bar = bar === null ? null : Math.min(Math.max(bar, 0), bars - 1);
    redraw();
  };
  return {
    onpointermove: (event) => select(area.barAt(event.offsetX)),
    onpointerleave: () => select(null),
    onblur: () => select(null),
    onkeydown: (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1 };
      if (event.key === "Escape") select(null);
      if (!(event.key in steps)) return;
      event.preventDefault();
      select((chosen.bar ?? bars) + steps[event.key]);
    },
  };
}

function valueMark(mark, area, label) {
  const y = area.y(mark);
  return [
    svg("line", { class: mark ? "grid" : "axis", x1: area.left, x2: area.right, y1: y, y2: y }),
    svg("text", { class: "tick", x: area.left - 8, y: y + 4, "text-anchor": "end" }, label(mark)),
  ];
}

function timeMark(at, area) {
  return svg("text", { class: "tick", x: area.x(at), y: HEIGHT - 6, "text-anchor": "middle" }, clock(at));
}

function barOf(bar, at, measure, now, area) {
  const { x, width } = area.slot(at);
  const kind = bar.end > now ? "bar unfinished" : "bar";
  return column(kind, x, width - Math.min(width / 4, 2), area.bottom, area.bottom - area.y(bar[measure]));
}

/** "1 hour" → "hour", for use after "the last" and "per". */
function spoken(text) {
  return text.replace(/^1 /, "");
}

function column(kind, x, width, bottom, height) {
  const seen = Math.max(height, 1.5); // so that small values are visible
  return svg("rect", { class: kind, x, y: bottom - seen, width: Math.max(width, 0.5), height: seen });
}

/** Full hours, or fractions of them, in local time. */
function timeMarks(bars, every) {
  const offset = new Date(bars[0].start * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((bars[0].start - offset) / every) * every + offset;
  const found = [];
  for (let at = first; at <= bars.at(-1).end; at += every) found.push(at);
  return found;
}
