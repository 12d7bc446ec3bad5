// What a reader wants to know about one action or one gap, in words.

// The actions that determine the makespan, first to last.
function criticalPath(simulation) {
  let at = { rank: -1, step: -1 };
  let end = -1;
  simulation.times.forEach((times, rank) => {
    times.end.forEach((time, step) => {
      if (time <= end) return;
      end = time;
      at = { rank, step };
    });
  });
  const path = [];
  while (at.rank >= 0) {
    path.push(at);
    const times = simulation.times[at.rank];
    at = { rank: times.causeRank[at.step], step: times.causeStep[at.step] };
  }
  return path.reverse();
}

// The computing action that made what `step` waited for; for other waits, the cause itself. A wait
// for a value leads from the receive of this rank over its send to what the sender had computed.
function sourceOfWait(program, simulation, rank, step) {
  const times = simulation.times[rank];
  let at = { rank: times.causeRank[step], step: times.causeStep[step] };
  if (at.rank < 0) return null;
  const receive = program.ranks[at.rank];
  if (!isReceive(receive.kind[at.step]) || at.rank !== rank) return at;
  const isForward = receive.kind[at.step] === Kind.ReceiveF;
  const stage = receive.stage[at.step] + (isForward ? -1 : 1);
  const microbatch = receive.microbatch[at.step];
  const makes = (kind) => (isForward ? kind === Kind.F : makesInputGradient(kind));
  at = { rank: simulation.times[rank].causeRank[at.step], step: simulation.times[rank].causeStep[at.step] };
  const sender = program.ranks[at.rank];
  for (let earlier = at.step; earlier >= 0; --earlier) {
    let isFound = false;
    sender.forEachPart(earlier, (kind, partStage, partMicrobatch) => {
      isFound ||= makes(kind) && partStage === stage && partMicrobatch === microbatch;
    });
    if (isFound) return { rank: at.rank, step: earlier };
  }
  return at;
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
function describeWait(program, simulation, rank, step) {
  const times = simulation.times[rank];
  const begin = times.waitBegin[step];
  const isSendWait = isSend(program.ranks[rank].kind[step]);
  const end = isSendWait ? times.end[step] : times.start[step];
  if (end <= begin) {
    const before = times.causeRank[step] < 0 ? null
      : { rank: times.causeRank[step], step: times.causeStep[step] };
    return before ? `did not wait; followed ${program.text(before)}` : 'did not wait; started at once';
  }
  const source = sourceOfWait(program, simulation, rank, step);
  const computed = times.waitComputed[step];
  const causes = [];
  if (computed > begin) {
    causes.push(`${IDLE_CAUSE_NAMES[times.waitCause[step]]} ${formatMs(computed - begin)}`);
  }
  if (end > computed) causes.push(`transfer ${formatMs(end - computed)}`);
  const from = source ? ` for ${program.text(source)} on rank ${source.rank}` : '';
  return `waited ${formatMs(end - begin)}${from} (${causes.join(', ')})`;
}

// The lines of a tooltip: the first one is its heading.
function explainAction(model, rank, step) {
  const times = model.simulation.times[rank];
  const lines = [
    model.program.ranks[rank].text(step),
    describeAction(model.program, rank, step),
    `start ${formatMs(times.start[step])}, end ${formatMs(times.end[step])}, `
      + `takes ${formatMs(times.end[step] - times.start[step])}`,
    describeWait(model.program, model.simulation, rank, step),
  ];
  if (model.isOnPath(rank, step)) lines.push('on the critical path');
  return lines;
}

// The end of the last computing action of `rank` before `step`.
function endBefore(model, rank, step) {
  const steps = model.program.ranks[rank].computeSteps;
  const index = step < 0 ? steps.length : steps.indexOf(step);
  return index === 0 ? 0 : model.simulation.times[rank].end[steps[index - 1]];
}

// The gap before `step`, or after the last action if `step` is -1.
function explainGap(model, rank, step) {
  const { program, simulation } = model;
  const begin = endBefore(model, rank, step);
  if (step < 0) {
    const { lastEnd } = simulation.ranks[rank];
    const lines = [`idle ${formatMs(simulation.makespan - begin)}`];
    if (lastEnd > begin) lines.push(`the gradients of rank ${rank} are reduced until ${formatMs(lastEnd)}`);
    if (simulation.makespan > lastEnd) lines.push(`rank ${rank} is finished at ${formatMs(lastEnd)}, others are not`);
    return lines;
  }
  const actions = program.ranks[rank];
  const times = simulation.times[rank];
  const lines = [
    `idle ${formatMs(times.start[step] - begin)} before ${actions.text(step)}`,
    `rank ${rank}, from ${formatMs(begin)} to ${formatMs(times.start[step])}`,
  ];
  for (let earlier = step - 1; earlier >= 0 && !isCompute(actions.kind[earlier]); --earlier) {
    if (!isSend(actions.kind[earlier]) || times.end[earlier] <= times.start[earlier]) continue;
    lines.splice(2, 0, `${actions.text(earlier)} ${describeWait(program, simulation, rank, earlier)}`);
  }
  if (times.start[step] > times.waitBegin[step]) lines.push(describeWait(program, simulation, rank, step));
  return lines;
}
