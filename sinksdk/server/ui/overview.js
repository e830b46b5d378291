// All connectors of the store.

import { total } from "./buckets.js";
import { h } from "./dom.js";
import { ago, count, number, rate } from "./format.js";
import { STATES, badge, table, wish } from "./parts.js";
import { sparkline } from "./plot.js";

const order = { by: "state", down: false };

/** The list, from GET /progress. */
export function overview({ connectors }, now, redraw) {
  if (connectors.length === 0) {
    return h("p", { class: "empty" }, "There are no connectors in this store yet. ", h("code", {}, "POST /connectors"), " creates one.");
  }
  return [
    h("h1", { class: "hidden" }, "Connectors"),
    h("div", { class: "tally" }, STATES.map((state) => tally(state, connectors))),
    table({ label: "Connectors", columns: columns(now), rows: connectors, key: (one) => one.name, order, redraw, layout: "cards" }),
  ];
}

/** Where a connector's own view is. */
export function address(name) {
  return `#/connectors/${encodeURIComponent(name)}`;
}

/** What of a connector an operator must look at: its state, or what of its tasks is worse. */
export function worst(connector) {
  return STATES.find((state) => connector.state === state || (connector.state === "RUNNING" && connector.task_states[state]));
}

function tally(state, connectors) {
  const found = connectors.filter((one) => worst(one) === state).length;
  return found > 0 && h("span", { key: state }, badge(state, `${number(found)} ${state.toLowerCase()}`));
}

function columns(now) {
  return [
    { id: "name", name: "Connector", value: (one) => one.name, class: "name", cell: (one) => [h("a", { href: address(one.name) }, one.name), remark(one)] },
    { id: "state", name: "State", value: urgency, class: "state", cell: state },
    { id: "tasks", name: "Tasks", isNumber: true, value: tasksOf, cell: (one) => number(tasksOf(one)) },
    { id: "partitions", name: "Partitions", isNumber: true, value: (one) => one.partition_count, cell: (one) => number(one.partition_count) },
    { id: "lag", name: "Lag", isNumber: true, value: (one) => one.lag, cell: (one) => number(one.lag) },
    { id: "rate", name: "Records/s", isNumber: true, value: (one) => one.rate, cell: (one) => rate(one.rate) },
    { id: "committed", name: "Committed, last hour", value: (one) => total(one.buckets).records, class: "committed", cell: (one) => committed(one, now) },
    { id: "driver", name: "Driver", class: "driver", value: (one) => one.driver, cell: (one) => driver(one, now) },
  ];
}

function remark(one) {
  if (one.state === "FAILED" && one.trace) return h("div", { class: "remark failed" }, lastLine(one.trace));
  if (one.missing_topics.length) return h("div", { class: "remark failed" }, `missing: ${one.missing_topics.join(", ")}`);
  if (one.failing_count) return h("div", { class: "remark restarting" }, `${number(one.failing_count)} of ${count(one.partition_count, "partition")} failing`);
  return null;
}

function lastLine(trace) {
  return trace.trimEnd().split("\n").at(-1);
}

function tasksOf(one) {
  return Object.values(one.task_states).reduce((sum, each) => sum + each, 0);
}

function state(one) {
  const restarting = one.task_states.RESTARTING;
  return [badge(one.state), restarting && badge("RESTARTING", count(restarting, "task")), wish(one)];
}

/** Worst first, a missing topic with what restarts; equals by name. */
function urgency(one) {
  const rank = STATES.indexOf(worst(one));
  return `${one.missing_topics.length ? Math.min(rank, STATES.indexOf("RESTARTING")) : rank} ${one.name}`;
}

function committed(one, now) {
  const sum = total(one.buckets);
  const text = sum.files ? count(sum.files, "file") : count(sum.records, "record");
  return h("span", { class: "spark" }, sparkline(one.buckets, now), sum.records ? h("span", {}, text) : h("span", { class: "muted" }, "nothing"));
}

function driver(one, now) {
  if (one.driver) return one.driver;
  return h("span", { class: "muted" }, one.heard_at === null ? "none yet" : `none; last heard of ${ago(one.heard_at, now)}`);
}
