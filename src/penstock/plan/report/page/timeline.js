// What follows from when the actions of a program ran: src/penstock/plan/simulator/timeline.cpp and
// its internal/ files, in whole nanoseconds. A test compares every time and every cause.

const IdleCause = Object.freeze({ WarmUp: 0, CoolDown: 1, Imbalance: 2, Transfer: 3, Overhead: 4, EndOfStep: 5 });
const IDLE_CAUSE_NAMES = ['warm-up', 'cool-down', 'imbalance', 'transfer', 'overhead', 'end of step'];

// When the actions of one rank ran, and why not earlier.
class RankTimes {
  constructor(length) {
    this.start = new Float64Array(length);
    this.end = new Float64Array(length);
    this.causeRank = new Int32Array(length).fill(-1);
    this.causeStep = new Int32Array(length).fill(-1);
    this.waitComputing = new Float64Array(length);  // counts as `waitCause`
    this.waitTransfer = new Float64Array(length);
    this.waitOverhead = new Float64Array(length);
    this.waitCause = new Uint8Array(length);
  }

  // `times` has start and end of every action in turn.
  static from(times) {
    const result = new RankTimes(times.length / 2);
    for (let step = 0; step < result.start.length; ++step) {
      result.start[step] = times[2 * step];
      result.end[step] = times[2 * step + 1];
    }
    return result;
  }

  setCause(step, { rank, step: causeStep }) {
    this.causeRank[step] = rank;
    this.causeStep[step] = causeStep;
  }

  causeOf(step) { return { rank: this.causeRank[step], step: this.causeStep[step] }; }
  waitOf(step) { return this.waitComputing[step] + this.waitTransfer[step] + this.waitOverhead[step]; }
}

// The steps that make, send and receive values, by the stage and microbatch that needs them.
class RouteGrid {
  constructor(size) {
    this.made = new Int32Array(size).fill(-1);
    this.sent = new Int32Array(size).fill(-1);
    this.received = new Int32Array(size).fill(-1);
  }
}

const NOWHERE = Object.freeze({ rank: -1, step: -1 });
const isActivation = (kind) => kind === Kind.F || kind === Kind.SendF || kind === Kind.ReceiveF;

// Where the values that cross ranks are made, sent and received.
class Routes {
  constructor(program) {
    const size = program.numStages * program.numMicrobatches;
    this.program = program;
    this.activations = new RouteGrid(size);
    this.gradients = new RouteGrid(size);
    for (const actions of program.ranks) {
      for (let step = 0; step < actions.length; ++step) {
        actions.forEachPart(step, (kind, stage, microbatch) => this.add(kind, stage, microbatch, step));
      }
    }
  }

  add(kind, stage, microbatch, step) {
    const toStage = isReceive(kind) ? stage : stage + (isActivation(kind) ? 1 : -1);
    if (microbatch < 0 || toStage < 0 || toStage >= this.program.numStages) return;
    const grid = isActivation(kind) ? this.activations : this.gradients;
    const index = toStage * this.program.numMicrobatches + microbatch;
    if (kind === Kind.F || makesInputGradient(kind)) grid.made[index] = step;
    else if (isSend(kind)) grid.sent[index] = step;
    else if (isReceive(kind)) grid.received[index] = step;
  }

  // The step of `rank` that receives what a computing action of it needs; -1 if there is none.
  receiveFor(kind, stage, microbatch, rank) {
    const { numStages, numMicrobatches, rankOfStage } = this.program;
    const needsActivation = kind === Kind.F && stage > 0;
    const needsGradient = makesInputGradient(kind) && stage + 1 < numStages;
    if (!needsActivation && !needsGradient) return -1;
    if (rankOfStage[stage + (needsActivation ? -1 : 1)] === rank) return -1;
    const grid = needsActivation ? this.activations : this.gradients;
    return grid.received[stage * numMicrobatches + microbatch];
  }

  // The other end of a send or receive, and the action that made the value of a receive.
  receiveOf(rank, step) { return this.find(rank, step, 'received'); }
  sendOf(rank, step) { return this.find(rank, step, 'sent'); }
  producerOf(rank, step) { return this.find(rank, step, 'made'); }

  find(rank, step, what) {
    const actions = this.program.ranks[rank];
    const kind = actions.kind[step];
    const stage = actions.stage[step];
    const grid = isActivation(kind) ? this.activations : this.gradients;
    const forward = isActivation(kind) === isSend(kind);
    const otherStage = stage + (forward ? 1 : -1);
    const toStage = isSend(kind) ? otherStage : stage;
    const found = grid[what][toStage * this.program.numMicrobatches + actions.microbatch[step]];
    return found < 0 ? NOWHERE : { rank: this.program.rankOfStage[otherStage], step: found };
  }
}

// Sets the cause of every action, from when each of them started and ended.
class CauseFinder {
  constructor(program, routes, times) {
    this.program = program;
    this.routes = routes;
    this.times = times;
    this.gathers = new Int32Array(program.numStages).fill(-1);
  }

  find(rank) {
    this.free = 0;             // the end of the last action that held the rank up
    this.freeFrom = NOWHERE;   // that action
    this.streamStep = -1;      // the last gather or reduction; they run beside the computation
    const { kind, length } = this.program.ranks[rank];
    for (let step = 0; step < length; ++step) {
      if (isCompute(kind[step])) this.compute(rank, step);
      else if (isSend(kind[step])) this.send(rank, step);
      else if (isReceive(kind[step])) this.receive(rank, step);
      else this.stream(rank, step);
    }
  }

  holdRank(rank, step) {
    this.free = this.times[rank].end[step];
    this.freeFrom = { rank, step };
  }

  compute(rank, step) {
    const times = this.times[rank];
    let ready = this.free;
    let latest = -1;
    const take = (input) => {
      if (input < 0 || times.end[input] <= ready) return;
      ready = times.end[input];
      latest = input;
    };
    this.program.ranks[rank].forEachPart(step, (kind, stage, microbatch) => {
      take(this.routes.receiveFor(kind, stage, microbatch, rank));
      take(this.gathers[stage]);
    });
    times.setCause(step, latest < 0 ? this.freeFrom : { rank, step: latest });
    this.holdRank(rank, step);
  }

  send(rank, step) {
    const times = this.times[rank];
    const receive = this.routes.receiveOf(rank, step);
    if (receive.rank < 0 || !this.isHeld({ rank, step }, receive)) times.setCause(step, this.freeFrom);
    if (times.end[step] > times.start[step]) this.holdRank(rank, step);
  }

  receive(rank, step) {
    const times = this.times[rank];
    const send = this.routes.sendOf(rank, step);
    const isSent = send.rank >= 0;
    if (isSent && this.isHeld(send, { rank, step })) this.times[send.rank].setCause(send.step, this.freeFrom);
    times.setCause(step, isSent && times.end[step] > times.start[step] ? send : this.freeFrom);
  }

  // Whether the send waited until its receive was posted.
  isHeld(send, receive) {
    const start = this.times[send.rank].start[send.step];
    const end = this.times[send.rank].end[send.step];
    const posted = this.times[receive.rank].start[receive.step];
    return start < posted && posted <= end;
  }

  stream(rank, step) {
    const times = this.times[rank];
    const { kind, stage } = this.program.ranks[rank];
    times.setCause(step, this.freeFrom);
    if (kind[step] === Kind.Reshard) return;
    if (this.streamStep >= 0 && times.end[this.streamStep] > this.free) {
      times.setCause(step, { rank, step: this.streamStep });
    }
    if (kind[step] === Kind.Unshard) this.gathers[stage[step]] = step;
    this.streamStep = step;
  }
}

// Where a rank is in its step: what decides between warm-up, cool-down and imbalance.
class Progress {
  constructor(actions) {
    this.hasBackwards = false;
    this.hasComputed = false;
    this.hasRunBackward = false;
    this.forwardsLeft = 0;
    for (const step of actions.computeSteps) {
      actions.forEachPart(step, (kind) => {
        if (kind === Kind.F) ++this.forwardsLeft;
        if (makesInputGradient(kind)) this.hasBackwards = true;
      });
    }
  }

  get cause() {
    if (!this.hasRunBackward && (this.hasBackwards || !this.hasComputed)) return IdleCause.WarmUp;
    return this.forwardsLeft === 0 ? IdleCause.CoolDown : IdleCause.Imbalance;
  }

  pass(actions, step) {
    this.hasComputed = true;
    actions.forEachPart(step, (kind) => {
      if (kind === Kind.F) --this.forwardsLeft;
      if (makesInputGradient(kind)) this.hasRunBackward = true;
    });
  }
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// What the computing action waited for between the time when its rank was free, and its start.
function explainCompute(program, routes, times, rank, step, held) {
  const ours = times[rank];
  const cause = ours.causeOf(step);
  const causeEnd = cause.rank < 0 ? 0 : times[cause.rank].end[cause.step];
  let ready = held.free;
  let computing = 0;
  if (causeEnd > held.free) {
    ready = Math.min(causeEnd, ours.start[step]);
    if (isReceive(program.ranks[cause.rank].kind[cause.step])) {
      const producer = routes.producerOf(cause.rank, cause.step);
      computing = clamp(times[producer.rank].end[producer.step], held.free, ready) - held.free;
    }
  }
  ready = clamp(held.streams, ready, ours.start[step]);
  ours.waitComputing[step] = computing;
  ours.waitTransfer[step] = ready - held.free - computing;
  ours.waitOverhead[step] = ours.start[step] - ready;
}

// Sets the waits of all actions of `rank`. Returns until when it was held up: by its computation and
// its sends, and by its gathers and reductions, which may run beside.
function explainWaits(program, routes, times, rank) {
  const actions = program.ranks[rank];
  const ours = times[rank];
  const progress = new Progress(actions);
  const held = { free: 0, streams: 0 };
  for (let step = 0; step < actions.length; ++step) {
    const kind = actions.kind[step];
    if (isCompute(kind)) {
      ours.waitCause[step] = progress.cause;
      if (ours.start[step] > held.free) explainCompute(program, routes, times, rank, step, held);
      progress.pass(actions, step);
      held.free = ours.end[step];
    } else if (isSend(kind)) {
      ours.waitTransfer[step] = ours.end[step] - ours.start[step];
      ours.waitOverhead[step] = ours.start[step] - held.free;
      held.free = ours.end[step];
    } else if (kind === Kind.Unshard || kind === Kind.ReduceGrad) {
      held.streams = Math.max(held.streams, ours.end[step]);
    }
  }
  return held;
}

// All but what needs the other ranks.
function usageOf(program, routes, times, costs, rank) {
  const actions = program.ranks[rank];
  const ours = times[rank];
  const held = explainWaits(program, routes, times, rank);
  const usage = { busy: 0, firstStart: 0, lastEnd: 0, idle: IDLE_CAUSE_NAMES.map(() => 0) };
  for (let step = 0; step < actions.length; ++step) {
    usage.lastEnd = Math.max(usage.lastEnd, ours.end[step]);
    usage.idle[ours.waitCause[step]] += ours.waitComputing[step];
    usage.idle[IdleCause.Transfer] += ours.waitTransfer[step];
    usage.idle[IdleCause.Overhead] += ours.waitOverhead[step];
    if (isCompute(actions.kind[step])) usage.busy += ours.end[step] - ours.start[step];
  }
  if (actions.computeSteps.length > 0) usage.firstStart = ours.start[actions.computeSteps[0]];
  const reduced = clamp(held.streams, held.free, usage.lastEnd);
  usage.idle[IdleCause.Transfer] += reduced - held.free;
  usage.idle[IdleCause.Overhead] += usage.lastEnd - reduced;
  return Object.assign(usage, peaks(program, costs, rank));
}

// `times` has the RankTimes of every rank, with starts and ends; measured ones are in order already.
function makeTimeline(program, times, costs) {
  const routes = new Routes(program);
  const finder = new CauseFinder(program, routes, times);
  program.ranks.forEach((_, rank) => finder.find(rank));
  const ranks = program.ranks.map((_, rank) => usageOf(program, routes, times, costs, rank));
  const makespan = Math.max(0, ...ranks.map((usage) => usage.lastEnd));
  const longestSpan = Math.max(0, ...ranks.map((usage) => usage.lastEnd - usage.firstStart));
  for (const usage of ranks) usage.idle[IdleCause.EndOfStep] += makespan - usage.lastEnd;
  const share = ranks.reduce((sum, usage) => sum + usage.busy, 0) / ranks.length;
  const bubble = (time) => (time > 0 ? 1 - share / time : 0);
  return {
    routes,
    times,
    ranks,
    makespan,
    longestSpan,
    makespanBubble: bubble(makespan),
    spanBubble: bubble(longestSpan),
  };
}
