// Formats of numbers, sizes and times.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDecimal = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const hourAndMinute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const wholeMoment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

const UNKNOWN = "–";
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1234567 → "1,234,567"; unknown: a dash. */
export function number(value) {
  return value === null || value === undefined ? UNKNOWN : grouped.format(value);
}

/** For an axis: whole up to 9,999, then 12K, 3.4M. */
export function axisNumber(value) {
  return Math.abs(value) < 10_000 ? oneDecimal.format(value) : short.format(value);
}

/** Records per second: with a decimal where it matters. */
export function rate(value) {
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  return value < 10 ? oneDecimal.format(value) : grouped.format(value);
}

/** 1536 → "1.5 KiB". */
export function bytes(value) {
  let unit = 0;
  let amount = value;
  while (amount >= 1024 && unit < SIZES.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${amount < 10 ? oneDecimal.format(amount) : grouped.format(amount)} ${SIZES[unit]}`;
}

/** Seconds in the largest unit that fits. */
export function duration(seconds) {
  const whole = Math.max(Math.floor(seconds), 0);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86_400)} d`;
}

/** Time since `then`; both in seconds since the epoch. */
export function ago(then, now) {
  return now - then < 1 ? "just now" : `${duration(now - then)} ago`;
}

/** Local time: "14:05". */
export function clock(seconds) {
  return hourAndMinute.format(seconds * 1000);
}

/** Local date and time. */
export function moment(seconds) {
  return wholeMoment.format(seconds * 1000);
}

/** "1 file", "1,200 files". */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** The exception of a stack trace, with the first line of its message. */
export function lastLine(trace) {
  const lines = trace.trimEnd().split("\n");
  const begin = lines.findLastIndex((line) => line.startsWith("Traceback (most recent call last):"));
  const raised = begin < 0 ? undefined : lines.slice(begin + 1).find((line) => /^\S/.test(line));
  return raised ?? lines.at(-1);
}
