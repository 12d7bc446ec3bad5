// Numbers for people, and small helpers for the document.
const NANOSECONDS_PER_MS = 1e6;

// Exact to the nanosecond, without zeros at the end: "18.522 ms".
function formatMs(time) {
  return `${Number((time / NANOSECONDS_PER_MS).toFixed(6))} ms`;
}

// Four digits of a time that was measured; the others are noise.
function formatRoundedMs(time) {
  return `${Number((time / NANOSECONDS_PER_MS).toPrecision(4))} ms`;
}

// As many digits after the point as the times need, for columns that line up.
function msDigits(times) {
  for (let digits = 0; digits < 3; ++digits) {
    const unit = NANOSECONDS_PER_MS / 10 ** digits;
    if (times.every((time) => time % unit === 0)) return digits;
  }
  return Math.max(...times) < NANOSECONDS_PER_MS ? 6 : 3;
}

// The same for times that were measured, with four digits for the longest.
function roundedMsDigits(times) {
  const longest = Math.max(1, ...times) / NANOSECONDS_PER_MS;
  return Math.min(6, Math.max(0, 3 - Math.floor(Math.log10(longest))));
}

const formatMsColumn = (time, digits) => (time / NANOSECONDS_PER_MS).toFixed(digits);
const formatPercent = (share) => `${(share * 100).toFixed(2)} %`;
const formatCount = (count) => String(Number(count.toFixed(3)));

function formatBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : value.toPrecision(4)} ${units[unit]}`;
}

// The distance of the marks on an axis: 1, 2 or 5 times a power of ten, and at least `smallest`.
function niceStep(smallest) {
  const power = 10 ** Math.floor(Math.log10(smallest));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= smallest);
  return (factor ?? 10) * power;
}

// make('td', {className: 'best'}, 'text', child): an element with properties and content.
function make(tag, properties, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith('data-') || name.startsWith('aria-') || name === 'role' || name === 'scope') {
      element.setAttribute(name, value);
    } else {
      element[name] = value;
    }
  }
  element.append(...content);
  return element;
}

const byId = (id) => document.getElementById(id);
