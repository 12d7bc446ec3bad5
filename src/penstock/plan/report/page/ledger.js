// The ledger: where the time of every rank went.
const CAUSE_FILLS = ['warm-up', 'cool-down', 'imbalance', 'in-transfer', 'overhead', 'end-of-step'];
const CAUSE_MEANINGS = [
  'before the rank\u2019s first backward: a value was not computed yet',
  'after the rank\u2019s last forward: a value was not computed yet',
  'in between: a value was not computed yet',
  'a value was computed but still on its way, or being sent, or parameters were',
  'nothing was waited for: the runtime\u2019s own time; none in a simulation',
  'the rank was finished, others were not',
];

const idleSum = (usage) => usage.idle.reduce((sum, time) => sum + time, 0);

function makeTimeCell(time, digits) {
  return make('td', { 'data-ns': time, className: time === 0 ? 'zero' : '' }, formatMsColumn(time, digits));
}

function makeIdleBar(usage, scale) {
  const bar = make('div', { className: 'bar', role: 'presentation' });
  usage.idle.forEach((time, cause) => {
    if (time === 0) return;
    const part = make('span', { className: `fill-${CAUSE_FILLS[cause]}` });
    part.style.width = `${time / scale * 100}%`;
    part.title = `${IDLE_CAUSE_NAMES[cause]} ${formatMs(time)}`;
    bar.append(part);
  });
  return bar;
}

function makeLedgerHead(hasBytes) {
  const heading = (...content) => make('th', { scope: 'col' }, ...content);
  return make('tr', {},
    heading('Rank'),
    make('th', { scope: 'col', className: 'wide' }, 'Idle time by cause'),
    ...IDLE_CAUSE_NAMES.map((name, cause) => {
      const cell = heading(make('span', { className: `swatch fill-${CAUSE_FILLS[cause]}` }), name);
      cell.title = CAUSE_MEANINGS[cause];
      return cell;
    }),
    heading('idle'), heading('busy'), heading('peak activations'),
    ...(hasBytes ? [heading('peak memory')] : []));
}

// `scale` is the idle time that fills a bar.
function makeLedger(model, scale) {
  const { ranks, makespan } = model.timeline;
  const hasBytes = !model.countsActivations;
  const digits = msDigits([makespan, ...ranks.flatMap((usage) => [usage.busy, ...usage.idle])]);
  const rows = ranks.map((usage, rank) => make('tr', { 'data-rank': rank },
    make('th', { scope: 'row' }, String(rank)),
    make('td', { className: 'wide' }, makeIdleBar(usage, scale)),
    ...usage.idle.map((time) => makeTimeCell(time, digits)),
    makeTimeCell(idleSum(usage), digits),
    makeTimeCell(usage.busy, digits),
    make('td', {}, formatCount(usage.peakActivations)),
    ...(hasBytes ? [make('td', {}, formatBytes(usage.peakBytes))] : [])));
  const total = (pick) => ranks.reduce((sum, usage) => sum + pick(usage), 0);
  const foot = make('tr', {},
    make('th', { scope: 'row' }, 'All'),
    make('td', { className: 'wide' }),
    ...IDLE_CAUSE_NAMES.map((_, cause) => makeTimeCell(total((usage) => usage.idle[cause]), digits)),
    makeTimeCell(total(idleSum), digits),
    makeTimeCell(total((usage) => usage.busy), digits),
    make('td', {}), ...(hasBytes ? [make('td', {})] : []));
  return make('table', {},
    make('thead', {}, makeLedgerHead(hasBytes)), make('tbody', {}, ...rows), make('tfoot', {}, foot));
}
