// All connectors of the store.

import { total } from "./buckets.js";
import { h } from "./dom.js";
import { ago, count, lastLine, number, rate } from "./format.js";
import { STATES, badge, numbers, pendingTarget, table, texts } from "./parts.js";
import { sparkline } from "./plot.js";

const order = { by: "State", down: false };

/** The list, from GET /progress. */
export function overview({ connectors, damaged }, now, redraw) {
  if (connectors.length + damaged.length === 0) {
    const how = [h("code", {}, "POST /connectors"), " creates one."];
    return h("p", { class: "empty" }, "This store has no connectors yet. ", how);
  }
  return [
    h("h1", { class: "hidden" }, "Connectors"),
    damaged.map((one) => h("p", { key: one.name, class: "alarm" }, `${one.name}: ${one.message}`)),
    h(
      "div",
      { class: "tally" },
      STATES.map((state) => tally(state, connectors)),
    ),
    table({
      label: "Connectors",
      columns: columns(now),
      rows: connectors,
      key: (one) => one.name,
      order,
      redraw,
      layout: "cards",
    }),
  ];
}

/** Address of a connector's view. */
export function address(name) {
  return `#/connectors/${encodeURIComponent(name)}`;
}

/** The state that needs attention: the connector's, or a worse one of its tasks. */
function worst(one) {
  return STATES.find((state) => one.state === state || (one.state === "RUNNING" && one.task_states[state]));
}

function tally(state, connectors) {
  const found = connectors.filter((one) => worst(one) === state).length;
  return found > 0 && h("span", { key: state }, badge(state, `${number(found)} ${state.toLowerCase()}`));
}

function columns(now) {
  return [
    texts("Connector", (one) => one.name, { cell: title, kind: "name" }),
    texts("State", urgency, { cell: state, kind: "state" }),
    texts("Type", (one) => one.type),
    numbers("Tasks", tasksOf),
    numbers("Partitions", (one) => (one.type === "source" ? null : one.partition_count)),
    numbers("Lag", (one) => one.lag),
    numbers("Records/s", (one) => one.rate, rate),
    texts("Committed, last hour", (one) => total(one.buckets).records, {
      cell: (one) => committed(one, now),
      kind: "committed",
    }),
    texts("Driver", (one) => one.driver, { cell: (one) => driver(one, now), kind: "driver" }),
  ];
}

function title(one) {
  return [h("a", { href: address(one.name) }, one.name), remark(one)];
}

function remark(one) {
  const line = (kind, text) => h("div", { class: `remark ${kind}` }, text);
  if (one.state === "FAILED" && one.trace) return line("failed", lastLine(one.trace));
  if (one.waiting) return line("restarting", `waiting: ${one.waiting.reason}`);
  if (one.missing_topics.length) return line("failed", `missing: ${one.missing_topics.join(", ")}`);
  if (one.unavailable_count) return line("restarting", `no leader: ${count(one.unavailable_count, "partition")}`);
  if (!one.failing_count) return null;
  const all = one.type === "source" ? count(tasksOf(one), "task") : count(one.partition_count, "partition");
  return line("restarting", `${number(one.failing_count)} of ${all} failing`);
}

function tasksOf(one) {
  return Object.values(one.task_states).reduce((sum, each) => sum + each, 0);
}

function state(one) {
  const restarting = one.task_states.RESTARTING;
  return [
    badge(one.state),
    " ",
    restarting && [badge("RESTARTING", count(restarting, "task")), " "],
    pendingTarget(one),
  ];
}

/** Sort key: worst state first, missing topics as RESTARTING; then by name. */
function urgency(one) {
  const rank = STATES.indexOf(worst(one));
  return `${one.missing_topics.length ? Math.min(rank, STATES.indexOf("RESTARTING")) : rank} ${one.name}`;
}

function committed(one, now) {
  const sum = total(one.buckets);
  const text = sum.files ? count(sum.files, "file") : count(sum.records, "record");
  const words = sum.records ? h("span", {}, text) : h("span", { class: "muted" }, "nothing");
  return h("span", { class: "spark" }, sparkline(one.buckets, now), words);
}

function driver(one, now) {
  if (one.driver) return one.driver;
  return one.last_heartbeat_at === null ? "none yet" : `none; last heartbeat ${ago(one.last_heartbeat_at, now)}`;
}
