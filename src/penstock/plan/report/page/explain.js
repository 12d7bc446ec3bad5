// What a reader wants to know about one action or one gap, in words.

// The actions that determine the makespan, first to last.
function criticalPath(timeline) {
  let at = { rank: -1, step: -1 };
  let end = -1;
  timeline.times.forEach((times, rank) => {
    times.end.forEach((time, step) => {
      if (time <= end) return;
      end = time;
      at = { rank, step };
    });
  });
  const path = [];
  while (at.rank >= 0) {
    path.push(at);
    const times = timeline.times[at.rank];
    at = { rank: times.causeRank[at.step], step: times.causeStep[at.step] };
  }
  return path.reverse();
}

// The computing action that made what `step` waited for; for other waits, the cause itself.
function sourceOfWait(program, timeline, rank, step) {
  const cause = timeline.times[rank].causeOf(step);
  if (cause.rank < 0) return null;
  const isForValue = cause.rank === rank && isReceive(program.ranks[rank].kind[cause.step]);
  return isForValue ? timeline.routes.producerOf(rank, cause.step) : cause;
}

function describeAction(program, rank, step) {
  const actions = program.ranks[rank];
  const parts = [];
  actions.forEachPart(step, (kind, stage, microbatch) => {
    const of = microbatch < 0 ? '' : ` of microbatch ${microbatch}`;
    parts.push(`${KIND_MEANINGS[kind]}${of} on stage ${stage}`);
  });
  return `${parts.join(', with ')}; rank ${rank}`;
}

// "waited 3 ms for 1F5 on rank 1 (warm-up 2 ms, transfer 1 ms)"
function describeWait(program, timeline, rank, step) {
  const times = timeline.times[rank];
  const wait = times.waitOf(step);
  if (wait === 0) {
    const before = times.causeOf(step);
    return before.rank < 0 ? 'did not wait; started at once' : `did not wait; followed ${program.text(before)}`;
  }
  const isForNothing = times.waitOverhead[step] === wait;
  const source = isForNothing ? null : sourceOfWait(program, timeline, rank, step);
  const causes = [
    [IDLE_CAUSE_NAMES[times.waitCause[step]], times.waitComputing[step]],
    [IDLE_CAUSE_NAMES[IdleCause.Transfer], times.waitTransfer[step]],
    [IDLE_CAUSE_NAMES[IdleCause.Overhead], times.waitOverhead[step]],
  ].filter(([, time]) => time > 0).map(([name, time]) => `${name} ${formatMs(time)}`);
  const from = source ? ` for ${program.text(source)} on rank ${source.rank}` : '';
  return `waited ${formatMs(wait)}${from} (${causes.join(', ')})`;
}

// The lines of a tooltip: the first one is its heading.
function explainAction(model, rank, step) {
  const times = model.timeline.times[rank];
  const lines = [
    model.program.ranks[rank].text(step),
    describeAction(model.program, rank, step),
    `start ${formatMs(times.start[step])}, end ${formatMs(times.end[step])}, `
      + `takes ${formatMs(times.end[step] - times.start[step])}`,
    describeWait(model.program, model.timeline, rank, step),
  ];
  if (model.isOnPath(rank, step)) lines.push('on the critical path');
  return lines;
}

// The end of the last computing action of `rank` before `step`.
function endBefore(model, rank, step) {
  const steps = model.program.ranks[rank].computeSteps;
  const index = step < 0 ? steps.length : steps.indexOf(step);
  return index === 0 ? 0 : model.timeline.times[rank].end[steps[index - 1]];
}

// The gap before `step`, or after the last action if `step` is -1.
function explainGap(model, rank, step) {
  const { program, timeline } = model;
  const begin = endBefore(model, rank, step);
  if (step < 0) {
    const { lastEnd } = timeline.ranks[rank];
    const lines = [`idle ${formatMs(timeline.makespan - begin)}`];
    if (lastEnd > begin) lines.push(`rank ${rank} sends values or reduces gradients until ${formatMs(lastEnd)}`);
    if (timeline.makespan > lastEnd) lines.push(`rank ${rank} is finished at ${formatMs(lastEnd)}, others are not`);
    return lines;
  }
  const actions = program.ranks[rank];
  const times = timeline.times[rank];
  const lines = [
    `idle ${formatMs(times.start[step] - begin)} before ${actions.text(step)}`,
    `rank ${rank}, from ${formatMs(begin)} to ${formatMs(times.start[step])}`,
  ];
  for (let earlier = step - 1; earlier >= 0 && !isCompute(actions.kind[earlier]); --earlier) {
    if (!isSend(actions.kind[earlier]) || times.waitOf(earlier) === 0) continue;
    lines.splice(2, 0, `${actions.text(earlier)} ${describeWait(program, timeline, rank, earlier)}`);
  }
  if (times.waitOf(step) > 0) lines.push(describeWait(program, timeline, rank, step));
  return lines;
}
