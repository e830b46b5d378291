// Parts of both views.

import { h, svg } from "./dom.js";
import { number } from "./format.js";

const SHAPES = {
  RUNNING: "M2 1l8 5-8 5z",
  PAUSED: "M2 1h3v10h-3zM7 1h3v10h-3z",
  STOPPED: "M1 1h10v10h-10z",
  FAILED: "M1 2.5l1.5-1.5 3.5 3.5 3.5-3.5 1.5 1.5-3.5 3.5 3.5 3.5-1.5 1.5-3.5-3.5-3.5 3.5-1.5-1.5 3.5-3.5z",
  RESTARTING: "M6 1a5 5 0 1 0 5 5h-2a3 3 0 1 1-3-3v2.5l4-3.5-4-3.5z",
  DELETING: "M1 5h10v2h-10z",
  UNASSIGNED: "M6 0a6 6 0 1 0 .01 0zM6 2a4 4 0 1 1-.01 0z",
};

/** All states, the one that needs most attention first. */
export const STATES = ["FAILED", "RESTARTING", "UNASSIGNED", "DELETING", "PAUSED", "STOPPED", "RUNNING"];

/** A state as a word, a shape and a colour. */
export function badge(state, text = state) {
  return h(
    "span",
    { class: `badge ${state.toLowerCase()}` },
    svg(
      "svg",
      { width: 10, height: 10, viewBox: "0 0 12 12", "aria-hidden": "true" },
      svg("path", { d: SHAPES[state], "fill-rule": "evenodd" }),
    ),
    text,
  );
}

/** The target state, if the connector has not reached it. */
export function pendingTarget(connector) {
  if (connector.is_deleted) return null; // DELETING says so
  const { state, target_state: target } = connector;
  // FAILED and UNASSIGNED already say that a connector with target RUNNING is not running.
  const isReached = target === "RUNNING" ? state !== "PAUSED" && state !== "STOPPED" : state === target;
  return isReached ? null : h("span", { class: "pending-target" }, `target: ${target}`);
}

/** A column of texts; `cell` returns an element to show instead of the text. */
export function texts(name, value, { cell = value, kind } = {}) {
  return { name, value, cell, kind };
}

/** A column of numbers; sorting by it starts with the largest. */
export function numbers(name, value, show = number) {
  return { name, value, cell: (row) => show(value(row)), kind: "number", isLargestFirst: true };
}

/**
 * A sortable table. Columns are created by texts and numbers; null and false are ignored.
 *
 * order: { by, down }, changed in place. layout: "cards" shows each row as a card on a narrow screen.
 */
export function table({ label, columns, rows, key, order, redraw, layout = "" }) {
  const shown = columns.filter(Boolean);
  return h(
    "div",
    { class: `scroller ${layout}`, role: "region", "aria-label": label, tabindex: "0" },
    // Explicit roles, because the card layout (display: block) removes the implicit ones.
    h(
      "table",
      { role: "table", "aria-label": label },
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          shown.map((column) => heading(column, order, redraw)),
        ),
      ),
      h(
        "tbody",
        { role: "rowgroup" },
        sorted(rows, shown, order).map((row) =>
          h(
            "tr",
            { role: "row", key: key(row) },
            shown.map((column) => cell(column, row)),
          ),
        ),
      ),
    ),
  );
}

function cell(column, row) {
  const isUnknown = column.kind === "number" && (column.value(row) ?? null) === null;
  const kind = isUnknown ? "number unknown" : column.kind;
  return h("td", { role: "cell", class: kind, "data-label": column.name }, column.cell(row));
}

function heading(column, order, redraw) {
  const isCurrent = order.by === column.name;
  const sort = () => {
    order.down = isCurrent ? !order.down : Boolean(column.isLargestFirst);
    order.by = column.name;
    redraw();
  };
  return h(
    "th",
    {
      role: "columnheader",
      scope: "col",
      class: column.kind,
      "aria-sort": isCurrent ? (order.down ? "descending" : "ascending") : undefined,
    },
    h(
      "button",
      { type: "button", onclick: sort },
      column.name,
      h("span", { "aria-hidden": "true" }, isCurrent ? (order.down ? " ↓" : " ↑") : ""),
    ),
  );
}

function sorted(rows, columns, order) {
  const value = columns.find((column) => column.name === order.by)?.value;
  if (!value) return rows;
  const sign = order.down ? -1 : 1;
  return [...rows].sort((a, b) => sign * compare(value(a), value(b))); // a stable sort
}

function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return (a ?? -1) - (b ?? -1); // unknown numbers come last
}
