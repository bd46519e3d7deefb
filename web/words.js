// Numbers and times as people read them.

const DAY = 86_400_000;

const two = (n) => String(n).padStart(2, "0");

/** The time of day, with its date unless that is within half a day of `now`; `tenths` for a tenth of a second. */
export function time(ms, now, tenths = false) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms`;
  const day = `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())} `;
  const clock = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
  const rest = tenths ? `.${Math.floor(at.getUTCMilliseconds() / 100)}` : "";
  return (Math.abs(ms - now) < DAY / 2 ? "" : day) + clock + rest;
}

/** A window's bounds. */
export function window(start, end, now) {
  const date = time(start, now).slice(0, -8);
  const last = time(end, now);
  return `${time(start, now)} - ${date && last.startsWith(date) ? last.slice(date.length) : last}`;
}

/** A duration in one or two units, cut and not rounded. */
export function span(ms) {
  const s = Math.floor(ms / 1000);
  const [minutes, hours, days] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86_400)];
  if (minutes === 0) return `${s}.${Math.floor((ms % 1000) / 100)} s`;
  if (hours === 0) return `${minutes} min ${s % 60} s`;
  if (days === 0) return `${hours} h ${minutes % 60} min`;
  return `${days} d ${hours % 24} h`;
}

/** A setting, which is a round number as a rule: `0`, `250 ms`, `2.5 s`, `5 min`, `3 h`. */
export function setting(ms) {
  if (ms === 0) return "0";
  for (const [unit, size] of [["d", DAY], ["h", 3_600_000], ["min", 60_000]]) {
    if (ms >= size && ms % size === 0) return `${ms / size} ${unit}`;
  }
  if (ms < 1000) return `${ms} ms`;
  return ms < 60_000 ? `${Number((ms / 1000).toFixed(2))} s` : span(ms);
}

/** A count with its thousands set apart. */
export function count(n) {
  return Math.round(n).toLocaleString("en-US");
}

/** A share in per cent, with as many digits as tell it from none and from all. */
export function share(part) {
  const percent = part * 100;
  if (percent === 0 || percent === 100) return `${percent} %`;
  if (percent < 0.01) return "< 0.01 %";
  if (percent > 99.99) return "> 99.99 %";
  return `${percent >= 99 || percent < 1 ? percent.toFixed(2) : percent.toFixed(1)} %`;
}

/** `1 partition`, `2 partitions`. */
export function many(n, what) {
  return `${count(n)} ${what}${n === 1 ? "" : "s"}`;
}
