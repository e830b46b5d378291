// The view of one connector: state, commits, failures, tasks and partitions.

import { total } from "./buckets.js";
import { h } from "./dom.js";
import { ago, count, duration, lastLine, moment, number, rate } from "./format.js";
import { badge, numbers, pendingTarget, table, texts } from "./parts.js";
import { plot } from "./plot.js";

const orders = {
  tasks: { by: "Task", down: false },
  partitions: { by: "Partition", down: false },
  sourcePartitions: { by: "Source partition", down: false },
};

/** The view, from GET /progress/{name}. */
export function connector(one, now, width, redraw) {
  return [
    h("a", { href: "#/", class: "back" }, "← All connectors"),
    h(
      "div",
      { class: "title" },
      h("h1", {}, one.name),
      h("span", { class: "muted" }, one.type),
      badge(one.state),
      pendingTarget(one),
    ),
    alarms(one, now),
    facts(one, now),
    plot(one, width, redraw),
    failures(one, now),
    tasks(one, redraw),
    one.type === "source" ? sourcePartitions(one, redraw) : partitions(one, redraw),
  ];
}

function waiting({ reason, since, next_attempt, attempts }) {
  const tried = attempts === 1 ? "once" : count(attempts, "time");
  return (
    `Waiting for an unavailable system since ${moment(since)}, retrying: tried ${tried}, ` +
    `next attempt at ${moment(next_attempt)}: ${reason}`
  );
}

function unavailable(partitions, all) {
  const named = partitions.slice(0, 5).map((one) => `${one.topic}-${one.partition} since ${moment(one.since)}`);
  const others = all > named.length ? ` and ${number(all - named.length)} more` : "";
  return `Not read, because they have no leader: ${named.join(", ")}${others}`;
}

function alarms(one, now) {
  return [
    one.missing_topics.length > 0 &&
      h("p", { key: "missing", class: "alarm" }, `Missing topics: ${one.missing_topics.join(", ")}`),
    one.unavailable_count > 0 &&
      h("p", { key: "unavailable", class: "alarm" }, unavailable(one.unavailable, one.unavailable_count)),
    one.state === "UNASSIGNED" &&
      h("p", { key: "unassigned", class: "alarm" }, `The target state is RUNNING, but ${silence(one, now)}.`),
    one.waiting && h("p", { key: "waiting", class: "alarm" }, waiting(one.waiting)),
    one.trace &&
      h(
        "details",
        { key: "trace", class: "alarm", open: !one.waiting },
        h("summary", {}, one.waiting ? "Reason for waiting" : `Reason for ${one.state}`),
        h("pre", { tabindex: "0" }, one.trace),
      ),
  ];
}

function silence(one, now) {
  if (one.last_heartbeat_at === null) return "no driver has sent a heartbeat yet";
  return `no driver has sent a heartbeat for ${duration(now - one.last_heartbeat_at)}`;
}

function facts(one, now) {
  const sum = total(one.buckets);
  const last = one.buckets.at(-1);
  const committed = sum.files ? count(sum.files, "file") : count(sum.records, "record");
  const at = one.committed_at ?? (last && Math.min(last.start + one.bucket_seconds, now));
  const when = at ? `in 6 hours, last ${ago(at, now)}` : "in 6 hours";
  const heartbeat = one.last_heartbeat_at === null ? "no heartbeat yet" : `heartbeat ${ago(one.last_heartbeat_at, now)}`;
  const isSource = one.type === "source";
  return h(
    "dl",
    { class: "facts" },
    !isSource && fact("Lag", number(one.lag), "offsets not committed"),
    fact("Records/s", rate(one.rate), isSource ? "committed now" : "read now"),
    fact("Committed", committed, when),
    isSource && fact("Transactions", number(sum.transactions), "in 6 hours"),
    fact("Generation", number(one.generation), `${count(one.tasks.length, "task")}, ${parts(one)}`),
    fact("Driver", one.driver || "none", heartbeat, "text"),
  );
}

/** Number of partitions; of a source, of those that its tasks have reported. */
function parts(one) {
  if (one.type !== "source") return count(one.partitions.length, "partition");
  const shown = one.source_partitions.length;
  return one.has_more_source_partitions ? `${number(shown)}+ source partitions` : count(shown, "source partition");
}

function fact(name, value, remark, kind = "") {
  const shown = [h("span", { class: `value ${kind}` }, value), h("span", { class: "muted" }, remark)];
  return h("div", {}, h("dt", {}, name), h("dd", {}, shown));
}

function failures(one, now) {
  if (one.failures.length === 0) return null;
  return h(
    "section",
    { key: "failures", "aria-labelledby": "failures-title" },
    h("h2", { id: "failures-title" }, "Last errors"),
    one.failures.map((failure) => past(failure, now)),
  );
}

function past(failure, now) {
  const when = { datetime: new Date(failure.at * 1000).toISOString(), title: moment(failure.at) };
  const times = failure.times > 1 && h("span", { class: "muted" }, ` ×${number(failure.times)}`);
  return h(
    "details",
    { key: failure.message, class: "failure" },
    h(
      "summary",
      {},
      h("time", when, ago(failure.at, now)),
      " ",
      h("span", { class: "where" }, placeOf(failure), times),
      " ",
      h("span", { class: "message" }, failure.message),
    ),
    h("pre", { tabindex: "0" }, failure.trace),
  );
}

function tasks(one, redraw) {
  if (one.tasks.length === 0) return null;
  const columns = [
    texts("Task", (task) => String(task.id)),
    texts("State", (task) => task.state, { cell: (task) => badge(task.state) }),
    ...(one.type === "source" ? committing() : reading(one)),
    one.tasks.some((task) => task.trace) &&
      texts("Error", (task) => lastLine(task.trace ?? ""), { cell: trace, kind: "message" }),
  ];
  return h(
    "section",
    { key: "tasks" },
    h("h2", {}, "Tasks"),
    table({ label: "Tasks", columns, rows: one.tasks, key: (task) => task.id, order: orders.tasks, redraw }),
  );
}

/** Columns of a sink's tasks. */
function reading(one) {
  const sumOf = (name) => (task) =>
    one.partitions.reduce((sum, row) => sum + (row.task === task.id ? (row[name] ?? 0) : 0), 0);
  return [
    numbers("Partitions", (task) => task.partition_count),
    numbers("Lag", sumOf("lag")),
    numbers("Records/s", sumOf("rate"), rate),
  ];
}

/** Columns of a source's tasks; records and transactions of all generations. */
function committing() {
  return [
    numbers("Records", (task) => task.records),
    numbers("Transactions", (task) => task.transactions),
    numbers("Records/s", (task) => task.rate, rate),
  ];
}

function trace(task) {
  if (!task.trace) return "";
  return h(
    "details",
    { key: lastLine(task.trace) },
    h("summary", {}, lastLine(task.trace)),
    h("pre", { tabindex: "0" }, task.trace),
  );
}

function partitions(one, redraw) {
  if (one.partitions.length === 0) return null;
  const columns = [
    texts("Partition", nameOf),
    numbers("Lag", (row) => row.lag),
    numbers("Records/s", (row) => row.rate, rate),
    numbers("Committed", (row) => row.committed),
    numbers("Read to", (row) => row.position),
    numbers("End", (row) => row.end),
    numbers("Last commit", (row) => row.committed_at, (at) => (at === null ? "–" : ago(at, one.now))),
    numbers("Task", (row) => row.task),
    one.partitions.some((row) => row.error) &&
      texts("Error", (row) => row.error ?? "", { cell: problem, kind: "message" }),
  ];
  return h(
    "section",
    { key: "partitions" },
    h("h2", {}, "Partitions"),
    table({
      label: "Partitions",
      columns,
      rows: one.partitions,
      key: nameOf,
      order: orders.partitions,
      redraw,
    }),
  );
}

function sourcePartitions(one, redraw) {
  if (one.source_partitions.length === 0) return null;
  const rows = one.source_partitions.map((row) => ({
    partition: JSON.stringify(row.partition),
    offset: JSON.stringify(row.offset),
    task: row.task,
  }));
  const columns = [
    texts("Source partition", (row) => row.partition, { kind: "code" }),
    texts("Offset", (row) => row.offset, { kind: "code" }),
    numbers("Task", (row) => row.task),
  ];
  return h(
    "section",
    { key: "source-partitions" },
    h("h2", {}, "Source partitions"),
    table({
      label: "Source partitions",
      columns,
      rows,
      key: (row) => `${row.task} ${row.partition}`,
      order: orders.sourcePartitions,
      redraw,
    }),
    h(
      "p",
      { class: "muted" },
      "Source partitions that the tasks have read or committed since they started",
      one.has_more_source_partitions ? "; only the last ones are listed." : ".",
    ),
  );
}

function placeOf(failure) {
  return failure.task === null ? nameOf(failure) : `task ${failure.task}`;
}

function nameOf(row) {
  return `${row.topic}-${row.partition}`;
}

function problem(row) {
  if (!row.error) return "";
  return [row.failures > 1 && h("strong", {}, `${number(row.failures)} in a row: `), row.error];
}
