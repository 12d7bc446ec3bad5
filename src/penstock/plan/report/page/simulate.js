// The simulator of src/penstock/plan/simulator/simulate.cpp, in whole nanoseconds: a test compares
// every time, and the page compares its first figures with those that the program computed.

const UNKNOWN = -1;

// Activations or gradients on their way, by the stage and microbatch that needs them.
class Values {
  constructor(size) {
    this.arrival = new Float64Array(size).fill(UNKNOWN);
    this.receiveStep = new Int32Array(size).fill(-1);
  }
}

class RankState {
  constructor() {
    this.next = 0;
    this.free = 0;        // the end of the last action that held the rank up
    this.streamFree = 0;  // of the gathers and reductions, which run beside
    this.wires = new Map();  // receiver -> when its wire is free
    this.isAsleep = false;
  }
}

// Finds out when each action runs; what follows from that is up to makeTimeline().
class Player {
  constructor(program, costs) {
    const size = program.numStages * program.numMicrobatches;
    this.program = program;
    this.costs = costs;
    this.activations = new Values(size);
    this.gradients = new Values(size);
    this.gathered = new Float64Array(program.numStages);
    this.states = program.ranks.map(() => new RankState());
    this.times = program.ranks.map((rank) => new RankTimes(rank.length));
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

  setTime(rank, step, start, end) {
    this.times[rank].start[step] = start;
    this.times[rank].end[step] = end;
  }

  compute(rank, step, state) {
    const actions = this.program.ranks[rank];
    let start = state.free;
    actions.forEachPart(step, (kind, stage, microbatch) => {
      if (start === UNKNOWN) return;
      const arrival = this.arrivalFor(kind, stage, microbatch, rank);
      start = arrival === UNKNOWN ? UNKNOWN : Math.max(start, arrival, this.gathered[stage]);
    });
    if (start === UNKNOWN) return false;
    state.free = start + actionTime(this.costs, actions, step);
    this.setTime(rank, step, start, state.free);
    return true;
  }

  // When the value from another rank is there that the action needs; 0 if it needs none.
  arrivalFor(kind, stage, microbatch, rank) {
    const { numStages, numMicrobatches, rankOfStage } = this.program;
    let values = null;
    if (kind === Kind.F && stage > 0) {
      if (rankOfStage[stage - 1] !== rank) values = this.activations;
    } else if (makesInputGradient(kind) && stage + 1 < numStages) {
      if (rankOfStage[stage + 1] !== rank) values = this.gradients;
    }
    return values === null ? 0 : values.arrival[stage * numMicrobatches + microbatch];
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

    const start = state.free;
    if (this.costs.sends === 'rendezvous') {
      if (receiveStep < 0) return false;
      state.free = Math.max(state.free, this.times[receiver].start[receiveStep]);
    }
    this.setTime(rank, step, start, state.free);
    const wireFree = Math.max(state.free, state.wires.get(receiver) ?? 0)
      + wireTime(this.costs, kind, stage);
    state.wires.set(receiver, wireFree);
    values.arrival[index] = wireFree + this.costs.hop_latency;
    if (receiveStep >= 0) this.complete(receiver, receiveStep, values.arrival[index]);
    this.wake(receiver);
    return true;
  }

  receive(rank, step, state) {
    const actions = this.program.ranks[rank];
    const kind = actions.kind[step];
    const stage = actions.stage[step];
    const values = kind === Kind.ReceiveF ? this.activations : this.gradients;
    const index = stage * this.program.numMicrobatches + actions.microbatch[step];
    values.receiveStep[index] = step;
    this.setTime(rank, step, state.free, state.free);
    if (values.arrival[index] !== UNKNOWN) {
      this.complete(rank, step, values.arrival[index]);
    } else if (this.costs.sends === 'rendezvous') {
      this.wake(this.program.rankOfStage[kind === Kind.ReceiveF ? stage - 1 : stage + 1]);
    }
  }

  // A receive ends when its value arrives, or at once if it was there before.
  complete(rank, step, arrival) {
    const { end } = this.times[rank];
    end[step] = Math.max(end[step], arrival);
  }

  // Gathers and reductions run one after the other, beside the computation.
  stream(rank, step, state) {
    const actions = this.program.ranks[rank];
    const kind = actions.kind[step];
    const stage = actions.stage[step];
    if (kind === Kind.Reshard) {  // releasing takes no time
      this.setTime(rank, step, state.free, state.free);
      return;
    }
    const cost = stageCost(this.costs, stage);
    const start = Math.max(state.free, state.streamFree);
    state.streamFree = start + (kind === Kind.Unshard ? cost.unshard : cost.reduce_grad);
    if (kind === Kind.Unshard) this.gathered[stage] = state.streamFree;
    this.setTime(rank, step, start, state.streamFree);
  }
}

function simulate(program, costs) {
  const player = new Player(program, costs);
  player.play();
  return makeTimeline(program, player.times, costs);
}
