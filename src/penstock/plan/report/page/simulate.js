// The simulator of src/penstock/plan/simulator/simulate.cpp, in whole nanoseconds: a test compares
// every time, and the page compares its first figures with those that the program computed.

const IdleCause = Object.freeze({ WarmUp: 0, CoolDown: 1, Imbalance: 2, Transfer: 3, EndOfStep: 4 });
const IDLE_CAUSE_NAMES = ['warm-up', 'cool-down', 'imbalance', 'transfer', 'end of step'];
const UNKNOWN = -1;

// Activations or gradients on their way, by the stage and microbatch that needs them.
class Values {
  constructor(size) {
    this.computed = new Float64Array(size).fill(UNKNOWN);
    this.arrival = new Float64Array(size).fill(UNKNOWN);
    this.sendStep = new Int32Array(size).fill(-1);
    this.receiveStep = new Int32Array(size).fill(-1);
  }
}

// When the actions of one rank ran, and why not earlier.
class RankTimes {
  constructor(length) {
    this.start = new Float64Array(length);
    this.end = new Float64Array(length);
    this.causeRank = new Int32Array(length).fill(-1);
    this.causeStep = new Int32Array(length).fill(-1);
    this.waitBegin = new Float64Array(length);     // when the rank was free for the action
    this.waitComputed = new Float64Array(length);  // `waitCause` until then, transfer from then on
    this.waitCause = new Uint8Array(length);
  }

  set(step, start, end, causeRank, causeStep) {
    this.start[step] = start;
    this.end[step] = end;
    this.causeRank[step] = causeRank;
    this.causeStep[step] = causeStep;
    this.waitBegin[step] = start;
    this.waitComputed[step] = start;
  }

  setWait(step, begin, computed, cause) {
    this.waitBegin[step] = begin;
    this.waitComputed[step] = computed;
    this.waitCause[step] = cause;
  }
}

class RankState {
  constructor(program) {
    this.next = 0;
    this.free = 0;        // the end of the last action that held the rank up
    this.freeRank = -1;   // that action
    this.freeStep = -1;
    this.streamFree = 0;  // of the gathers and reductions, which run beside
    this.streamStep = -1;
    this.wires = new Map();  // receiver -> when its wire is free
    this.isAsleep = false;
    this.hasBackwards = false;
    this.hasComputed = false;
    this.hasRunBackward = false;
    this.forwardsLeft = 0;
    for (let step = 0; step < program.length; ++step) {
      program.forEachPart(step, (kind) => {
        if (kind === Kind.F) ++this.forwardsLeft;
        if (makesInputGradient(kind)) this.hasBackwards = true;
      });
    }
  }
}

class Player {
  constructor(program, costs) {
    const size = program.numStages * program.numMicrobatches;
    this.program = program;
    this.costs = costs;
    this.activations = new Values(size);
    this.gradients = new Values(size);
    this.gatherEnd = new Float64Array(program.numStages);
    this.gatherStep = new Int32Array(program.numStages).fill(-1);
    this.states = program.ranks.map((rank) => new RankState(rank));
    this.times = program.ranks.map((rank) => new RankTimes(rank.length));
    this.usages = program.ranks.map(() => ({ busy: 0, firstStart: 0, lastEnd: 0, idle: [0, 0, 0, 0, 0] }));
    this.awake = program.ranks.map((_, rank) => rank);
  }

  play() {
    while (this.awake.length > 0) {
      const turn = this.awake;
      this.awake = [];
      for (const rank of turn) this.advance(rank);
    }
    const isStuck = this.states.some((state, rank) => state.next < this.program.ranks[rank].length);
    if (isStuck) throw new Error('the program does not run to its end');
  }

  advance(rank) {
    const state = this.states[rank];
    const length = this.program.ranks[rank].length;
    while (state.next < length) {
      if (!this.run(rank, state.next, state)) {
        state.isAsleep = true;
        return;
      }
      ++state.next;
    }
  }

  wake(rank) {
    if (!this.states[rank].isAsleep) return;
    this.states[rank].isAsleep = false;
    this.awake.push(rank);
  }

  // False if the action has to wait for a rank that has not got far enough yet.
  run(rank, step, state) {
    const kind = this.program.ranks[rank].kind[step];
    if (isCompute(kind)) return this.compute(rank, step, state);
    if (isSend(kind)) return this.send(rank, step, state);
    if (isReceive(kind)) this.receive(rank, step, state);
    else this.stream(rank, step, state);
    return true;
  }

  compute(rank, step, state) {
    const actions = this.program.ranks[rank];
    const input = { arrival: 0, computed: 0, step: -1 };
    let isKnown = true;
    actions.forEachPart(step, (kind, stage, microbatch) => {
      isKnown = isKnown && this.findInput(kind, stage, microbatch, rank, input);
    });
    if (!isKnown) return false;

    const start = Math.max(state.free, input.arrival);
    const end = start + actionTime(this.costs, actions, step);
    const usage = this.usages[rank];
    const waits = input.arrival > state.free;
    const times = this.times[rank];
    times.set(step, start, end, waits ? rank : state.freeRank, waits ? input.step : state.freeStep);
    if (waits) this.explainWait(rank, step, state, input);
    if (!state.hasComputed) usage.firstStart = start;
    usage.busy += end - start;
    state.free = end;
    state.freeRank = rank;
    state.freeStep = step;
    state.hasComputed = true;
    actions.forEachPart(step, (kind, stage, microbatch) => {
      this.finishPart(kind, stage, microbatch, end, state);
    });
    return true;
  }

  // Takes a part's inputs into account. False if one of them has not been sent yet.
  findInput(kind, stage, microbatch, rank, input) {
    const { numStages, numMicrobatches, rankOfStage } = this.program;
    let values = null;
    if (kind === Kind.F && stage > 0) {
      if (rankOfStage[stage - 1] !== rank) values = this.activations;
    } else if (makesInputGradient(kind) && stage + 1 < numStages) {
      if (rankOfStage[stage + 1] !== rank) values = this.gradients;
    }
    if (values !== null) {
      const index = stage * numMicrobatches + microbatch;
      const arrival = values.arrival[index];
      if (arrival === UNKNOWN) return false;
      if (arrival > input.arrival) {
        input.arrival = arrival;
        input.computed = values.computed[index];
        input.step = values.receiveStep[index];
      }
    }
    if (this.gatherEnd[stage] > input.arrival) {
      input.arrival = this.gatherEnd[stage];
      input.computed = 0;
      input.step = this.gatherStep[stage];
    }
    return true;
  }

  // Splits the wait that now ends: until the value was computed, and from then on.
  explainWait(rank, step, state, input) {
    const computed = Math.min(Math.max(input.computed, state.free), input.arrival);
    let cause = IdleCause.Imbalance;
    if (!state.hasRunBackward && (state.hasBackwards || !state.hasComputed)) {
      cause = IdleCause.WarmUp;
    } else if (state.forwardsLeft === 0) {
      cause = IdleCause.CoolDown;
    }
    const { idle } = this.usages[rank];
    idle[cause] += computed - state.free;
    idle[IdleCause.Transfer] += input.arrival - computed;
    this.times[rank].setWait(step, state.free, computed, cause);
  }

  finishPart(kind, stage, microbatch, end, state) {
    const { numStages, numMicrobatches } = this.program;
    if (kind === Kind.F) {
      --state.forwardsLeft;
      if (stage + 1 < numStages) {
        this.activations.computed[(stage + 1) * numMicrobatches + microbatch] = end;
      }
    } else if (makesInputGradient(kind)) {
      state.hasRunBackward = true;
      if (stage > 0) this.gradients.computed[(stage - 1) * numMicrobatches + microbatch] = end;
    }
  }

  send(rank, step, state) {
    const actions = this.program.ranks[rank];
    const kind = actions.kind[step];
    const stage = actions.stage[step];
    const toStage = kind === Kind.SendF ? stage + 1 : stage - 1;
    const receiver = this.program.rankOfStage[toStage];
    const values = kind === Kind.SendF ? this.activations : this.gradients;
    const index = toStage * this.program.numMicrobatches + actions.microbatch[step];
    const receiveStep = values.receiveStep[index];
    const times = this.times[rank];

    times.set(step, state.free, state.free, state.freeRank, state.freeStep);
    if (this.costs.sends === 'rendezvous') {
      if (receiveStep < 0) return false;
      const theirs = this.times[receiver];
      const posted = theirs.start[receiveStep];
      if (posted > state.free) {
        this.usages[rank].idle[IdleCause.Transfer] += posted - state.free;
        // The cause is what held up the post.
        times.set(step, state.free, posted, theirs.causeRank[receiveStep], theirs.causeStep[receiveStep]);
        times.setWait(step, state.free, state.free, IdleCause.Transfer);
        state.free = posted;
        state.freeRank = rank;
        state.freeStep = step;
      }
    }
    const wireFree = Math.max(state.free, state.wires.get(receiver) ?? 0)
      + wireTime(this.costs, kind, stage);
    state.wires.set(receiver, wireFree);
    values.arrival[index] = wireFree + this.costs.hop_latency;
    values.sendStep[index] = step;
    if (receiveStep >= 0) this.complete(receiver, receiveStep, rank, step, values.arrival[index]);
    this.wake(receiver);
    return true;
  }

  receive(rank, step, state) {
    const actions = this.program.ranks[rank];
    const kind = actions.kind[step];
    const stage = actions.stage[step];
    const fromStage = kind === Kind.ReceiveF ? stage - 1 : stage + 1;
    const sender = this.program.rankOfStage[fromStage];
    const values = kind === Kind.ReceiveF ? this.activations : this.gradients;
    const index = stage * this.program.numMicrobatches + actions.microbatch[step];
    values.receiveStep[index] = step;
    this.times[rank].set(step, state.free, state.free, state.freeRank, state.freeStep);
    if (values.arrival[index] !== UNKNOWN) {
      this.complete(rank, step, sender, values.sendStep[index], values.arrival[index]);
    } else if (this.costs.sends === 'rendezvous') {
      this.wake(sender);
    }
  }

  // A receive ends when its value arrives; only then is it the send that it waited for.
  complete(rank, step, sender, sendStep, arrival) {
    const times = this.times[rank];
    if (arrival <= times.start[step]) return;
    times.end[step] = arrival;
    times.causeRank[step] = sender;
    times.causeStep[step] = sendStep;
  }

  // Gathers and reductions run one after the other, beside the computation.
  stream(rank, step, state) {
    const actions = this.program.ranks[rank];
    const kind = actions.kind[step];
    const stage = actions.stage[step];
    const cost = stageCost(this.costs, stage);
    const times = this.times[rank];
    if (kind === Kind.Reshard) {  // releasing parameters takes no time
      times.set(step, state.free, state.free, state.freeRank, state.freeStep);
      return;
    }
    const start = Math.max(state.free, state.streamFree);
    const end = start + (kind === Kind.Unshard ? cost.unshard : cost.reduce_grad);
    if (kind === Kind.Unshard) {
      this.gatherEnd[stage] = end;
      this.gatherStep[stage] = step;
    }
    const waits = start > state.free;
    times.set(step, start, end, waits ? rank : state.freeRank, waits ? state.streamStep : state.freeStep);
    state.streamFree = end;
    state.streamStep = step;
  }

  finish() {
    let work = 0;
    let makespan = 0;
    let longestSpan = 0;
    this.usages.forEach((usage, rank) => {
      const state = this.states[rank];
      usage.lastEnd = Math.max(state.free, state.streamFree);
      makespan = Math.max(makespan, usage.lastEnd);
      longestSpan = Math.max(longestSpan, usage.lastEnd - usage.firstStart);
      work += usage.busy;
    });
    this.usages.forEach((usage, rank) => {
      usage.idle[IdleCause.Transfer] += usage.lastEnd - this.states[rank].free;
      usage.idle[IdleCause.EndOfStep] += makespan - usage.lastEnd;
      Object.assign(usage, peaks(this.program, this.costs, rank));
    });
    const share = work / this.usages.length;
    const bubble = (time) => (time > 0 ? 1 - share / time : 0);
    return {
      times: this.times,
      ranks: this.usages,
      makespan,
      longestSpan,
      makespanBubble: bubble(makespan),
      spanBubble: bubble(longestSpan),
    };
  }
}

function simulate(program, costs) {
  const player = new Player(program, costs);
  player.play();
  return player.finish();
}
