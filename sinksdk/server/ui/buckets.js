// Sums of commits over intervals.

export const HOUR = 3600;

/** Sums of buckets over the last `range` seconds, one for each `step` seconds, oldest first. */
export function series(buckets, now, range, step) {
  const end = Math.floor(now / step) * step + step;
  const start = end - range;
  const sums = [];
  for (let at = start; at < end; at += step) sums.push({ start: at, end: at + step, ...nothing() });
  for (const bucket of buckets) {
    const sum = sums[Math.floor((bucket.start - start) / step)];
    if (sum) add(sum, bucket);
  }
  return sums;
}

/** Sum of all buckets. */
export function total(buckets) {
  const sum = nothing();
  for (const bucket of buckets) add(sum, bucket);
  return sum;
}

/** Round numbers for an axis from 0 to at least `most`, in at most `wanted` steps. `base` is 10, or 1024 for sizes. */
export function ticks(most, wanted = 4, base = 10) {
  if (most <= 0) return [0, 1];
  const power = base ** Math.floor(Math.log(most / wanted) / Math.log(base));
  const rounds = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = Math.max(
    rounds.map((round) => round * power).find((size) => size * wanted >= most),
    1,
  );
  const found = [];
  for (let at = 0; at < most + step; at += step) found.push(at);
  return found;
}

function nothing() {
  return { records: 0, files: 0, bytes: 0, transactions: 0 };
}

function add(sum, bucket) {
  sum.records += bucket.records;
  sum.files += bucket.files;
  sum.bytes += bucket.bytes;
  sum.transactions += bucket.transactions;
}
