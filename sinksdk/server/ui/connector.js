// One connector: what it does, what it has committed, what fails.

import { total } from "./buckets.js";
import { h } from "./dom.js";
import { ago, count, moment, number, rate } from "./format.js";
import { badge, table, wish } from "./parts.js";
import { plot } from "./plot.js";

const orders = { tasks: { by: "id", down: false }, partitions: { by: "partition", down: false } };

/** The view, from GET /progress/{name}. */
export function connector(one, now, width, redraw) {
  return [
    h("a", { href: "#/", class: "back" }, "← All connectors"),
    h("div", { class: "title" }, h("h1", {}, one.name), badge(one.state), wish(one)),
    alarms(one, now),
    facts(one, now),
    plot(one, width, redraw),
    failures(one, now),
    tasks(one, redraw),
    partitions(one, redraw),
  ];
}

function alarms(one, now) {
  return [
    one.missing_topics.length > 0 &&
      h("p", { key: "missing", class: "alarm" }, `Missing in the source: ${one.missing_topics.join(", ")}`),
    one.state === "UNASSIGNED" &&
      h("p", { key: "unassigned", class: "alarm" }, one.heard_at === null ? "It shall run, and no driver has been heard of yet." : `It shall run, and no driver has been heard of for ${ago(one.heard_at, now).replace(" ago", "")}.`),
    one.trace &&
      h("details", { key: "trace", class: "alarm", open: true }, h("summary", {}, "What made it FAILED"), h("pre", { tabindex: "0" }, one.trace)),
  ];
}

function facts(one, now) {
  const committed = total(one.buckets);
  const last = one.buckets.at(-1);
  return h(
    "dl",
    { class: "facts" },
    fact("Lag", number(one.lag), "offsets not committed"),
    fact("Records/s", rate(one.rate), "read, lately"),
    fact("Committed", committed.files ? count(committed.files, "file") : count(committed.records, "record"), last ? `in 6 hours, last ${ago(Math.min(last.start + one.bucket_seconds, now), now)}` : "in 6 hours"),
    fact("Generation", number(one.generation), `${count(one.tasks.length, "task")}, ${count(one.partitions.length, "partition")}`),
    fact("Driver", one.driver || "none", one.heard_at === null ? "never heard of" : `heard of ${ago(one.heard_at, now)}`, "text"),
  );
}

function fact(name, value, remark, kind = "") {
  return h("div", {}, h("dt", {}, name), h("dd", {}, h("span", { class: `value ${kind}` }, value), h("span", { class: "muted" }, remark)));
}

function failures(one, now) {
  if (one.failures.length === 0) return null;
  return h(
    "section",
    { key: "failures", "aria-labelledby": "failures-title" },
    h("h2", { id: "failures-title" }, "Last errors"),
    one.failures.map((failure) =>
      h(
        "details",
        { key: failure.message, class: "failure" },
        h(
          "summary",
          {},
          h("time", { datetime: new Date(failure.at * 1000).toISOString(), title: moment(failure.at) }, ago(failure.at, now)),
          h("span", { class: "where" }, `${failure.topic}-${failure.partition}`, failure.times > 1 && h("span", { class: "muted" }, ` ×${number(failure.times)}`)),
          h("span", { class: "message" }, failure.message),
        ),
        h("pre", { tabindex: "0" }, failure.trace),
      ),
    ),
  );
}

function tasks(one, redraw) {
  if (one.tasks.length === 0) return null;
  const columns = [
    { id: "id", name: "Task", value: (task) => task.id, cell: (task) => number(task.id) },
    { id: "state", name: "State", value: (task) => task.state, cell: (task) => badge(task.state) },
    { id: "partitions", name: "Partitions", isNumber: true, value: (task) => task.partition_count, cell: (task) => number(task.partition_count) },
    { id: "lag", name: "Lag", isNumber: true, value: (task) => sum(of(task), "lag"), cell: (task) => number(sum(of(task), "lag")) },
    { id: "rate", name: "Records/s", isNumber: true, value: (task) => sum(of(task), "rate"), cell: (task) => rate(sum(of(task), "rate")) },
    one.tasks.some((task) => task.trace) && { id: "trace", name: "Error", class: "message", cell: (task) => task.trace ?? "" },
  ].filter(Boolean);
  const of = (task) => one.partitions.filter((partition) => partition.task === task.id);
  return h(
    "section",
    { key: "tasks" },
    h("h2", {}, "Tasks"),
    table({ label: "Tasks", columns, rows: one.tasks, key: (task) => task.id, order: orders.tasks, redraw }),
  );
}

function partitions(one, redraw) {
  if (one.partitions.length === 0) return null;
  const columns = [
    { id: "partition", name: "Partition", value: nameOf, cell: nameOf },
    { id: "lag", name: "Lag", isNumber: true, value: (row) => row.lag, cell: (row) => number(row.lag) },
    { id: "rate", name: "Records/s", isNumber: true, value: (row) => row.rate, cell: (row) => rate(row.rate) },
    { id: "committed", name: "Committed", isNumber: true, value: (row) => row.committed, cell: (row) => number(row.committed) },
    { id: "position", name: "Read to", isNumber: true, value: (row) => row.position, cell: (row) => number(row.position) },
    { id: "end", name: "End", isNumber: true, value: (row) => row.end, cell: (row) => number(row.end) },
    { id: "task", name: "Task", isNumber: true, value: (row) => row.task, cell: (row) => number(row.task) },
    one.partitions.some((row) => row.error) && { id: "error", name: "Error", class: "message", value: (row) => row.failures, cell: problem },
  ].filter(Boolean);
  return h(
    "section",
    { key: "partitions" },
    h("h2", {}, "Partitions"),
    table({ label: "Partitions", columns, rows: one.partitions, key: nameOf, order: orders.partitions, redraw }),
  );
}

function nameOf(row) {
  return `${row.topic}-${row.partition}`;
}

function problem(row) {
  if (!row.error) return "";
  return [row.failures > 1 && h("strong", {}, `${number(row.failures)} in a row: `), row.error];
}

function sum(rows, name) {
  return rows.reduce((known, row) => known + (row[name] ?? 0), 0);
}
