// The table that compares the schedules, and the figures of each.

const COMPARED = [
  { label: 'Makespan, ms', key: 'makespan', value: (model) => model.timeline.makespan },
  { label: 'Bubble (makespan)', key: 'makespan-bubble', value: (model) => model.timeline.makespanBubble },
  { label: 'Bubble (span)', key: 'span-bubble', value: (model) => model.timeline.spanBubble },
  { label: 'Peak activations, worst rank', key: 'peak-activations', value: (model) => model.peakActivations },
  { label: 'Peak of activations and parameters, worst rank', key: 'peak-bytes', value: (model) => model.peakBytes },
];

function comparedColumns(models) {
  const countsOnly = models.every((model) => model.countsActivations);
  return COMPARED.filter((column) => column.key !== 'peak-bytes' || !countsOnly);
}

function formatFigure(key, value, digits) {
  if (key === 'makespan') return formatMsColumn(value, digits);
  if (key === 'peak-bytes') return formatBytes(value);
  return key.endsWith('bubble') ? formatPercent(value) : formatCount(value);
}

function makeShares(model) {
  const { ranks, makespan } = model.timeline;
  const bar = make('div', { className: 'bar', role: 'presentation' });
  const whole = Math.max(1, makespan * ranks.length);
  IDLE_CAUSE_NAMES.forEach((name, cause) => {
    const time = ranks.reduce((sum, usage) => sum + usage.idle[cause], 0);
    if (time === 0) return;
    const part = make('span', { className: `fill-${CAUSE_FILLS[cause]}` });
    part.style.width = `${time / whole * 100}%`;
    part.title = `${name} ${formatPercent(time / whole)}`;
    bar.append(part);
  });
  return bar;
}

function makeComparison(models) {
  const columns = comparedColumns(models);
  const makespans = models.map((model) => model.timeline.makespan);
  const digits = models.some((model) => model.isRounded) ? roundedMsDigits(makespans) : msDigits(makespans);
  const heading = (text) => make('th', { scope: 'col' }, text);
  const head = make('tr', {}, heading('Schedule'), heading('Ranks'), heading('Stages'),
    heading('Microbatches'), ...columns.map((column) => heading(column.label)),
    make('th', { scope: 'col', className: 'wide' }, 'Idle share of the makespan, by cause'));
  // What was measured is not compared with what was predicted.
  const measured = models.filter((model) => model.isMeasured);
  const candidates = measured.length > 0 ? measured : models;
  const bestOf = new Map(columns.map((column) => [column.key, Math.min(...candidates.map(column.value))]));
  const rows = models.map((model) => make('tr', {},
    make('th', { scope: 'row' }, model.shownName),
    ...[model.program.ranks.length, model.program.numStages, model.program.numMicrobatches]
      .map((count) => make('td', {}, String(count))),
    ...columns.map((column) => {
      const value = column.value(model);
      const isBest = candidates.length > 1 && candidates.includes(model) && value === bestOf.get(column.key);
      return make('td', { className: isBest ? 'best' : '', 'data-figure': column.key, 'data-value': value },
        formatFigure(column.key, value, digits));
    }),
    make('td', { className: 'wide' }, makeShares(model))));
  return make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows));
}

function makeFigures(model) {
  const { timeline } = model;
  const work = timeline.ranks.reduce((sum, usage) => sum + usage.busy, 0);
  const figure = (label, key, value, text) => make('div', {},
    make('dt', {}, label), make('dd', { 'data-figure': key, 'data-value': value }, text));
  const figures = [
    figure('makespan', 'makespan', timeline.makespan, model.formatTime(timeline.makespan)),
    figure('bubble (makespan)', 'makespan-bubble', timeline.makespanBubble, formatPercent(timeline.makespanBubble)),
    figure('bubble (span)', 'span-bubble', timeline.spanBubble, formatPercent(timeline.spanBubble)),
    figure('longest span of a rank', 'longest-span', timeline.longestSpan, model.formatTime(timeline.longestSpan)),
    figure('peak activations, worst rank', 'peak-activations', model.peakActivations, formatCount(model.peakActivations)),
    figure('work of all ranks', 'work', work, model.formatTime(work)),
  ];
  if (!model.countsActivations) {
    figures.push(figure('peak of activations and parameters, worst rank', 'peak-bytes', model.peakBytes, formatBytes(model.peakBytes)));
  }
  return make('dl', { className: 'figures' }, ...figures);
}
