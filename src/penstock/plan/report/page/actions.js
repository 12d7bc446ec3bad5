// Programs: the actions of all ranks, as the CSV of a lowered schedule spells them.

// In the order of penstock::ActionKind.
const Kind = Object.freeze({
  Idle: 0, F: 1, B: 2, I: 3, W: 4, Overlap: 5,
  SendF: 6, ReceiveF: 7, SendB: 8, ReceiveB: 9,
  Unshard: 10, Reshard: 11, ReduceGrad: 12,
});
const KIND_TEXTS = ['', 'F', 'B', 'I', 'W', 'OVERLAP_F_B', 'SEND_F', 'RECV_F', 'SEND_B', 'RECV_B',
  'UNSHARD', 'RESHARD', 'REDUCE_GRAD'];
const KIND_OF_TEXT = new Map(KIND_TEXTS.map((text, kind) => [text, kind]));
const KIND_MEANINGS = ['', 'forward', 'backward', 'input gradient', 'weight gradient', 'pair',
  'send of the activation', 'receive of the activation', 'send of the gradient',
  'receive of the gradient', 'gather of the parameters', 'release of the parameters',
  'reduction of the gradients'];

const isCompute = (kind) => kind >= Kind.F && kind <= Kind.Overlap;
const isSend = (kind) => kind === Kind.SendF || kind === Kind.SendB;
const isReceive = (kind) => kind === Kind.ReceiveF || kind === Kind.ReceiveB;
const makesInputGradient = (kind) => kind === Kind.B || kind === Kind.I;
const makesWeightGradient = (kind) => kind === Kind.B || kind === Kind.W;

const SIMPLE_ACTION = /^(\d+)([A-Z_]+?)(\d*)$/;

function parseSimpleAction(text) {
  const found = SIMPLE_ACTION.exec(text);
  if (!found) throw new Error(`unknown action "${text}"`);
  return {
    stage: Number(found[1]),
    kind: KIND_OF_TEXT.get(found[2]),
    microbatch: found[3] === '' ? -1 : Number(found[3]),
  };
}

// The actions of one rank, column by column: programs have hundreds of thousands of them.
class RankProgram {
  constructor(cells) {
    this.length = cells.length;
    this.kind = new Uint8Array(cells.length);
    this.stage = new Int32Array(cells.length);
    this.microbatch = new Int32Array(cells.length);
    this.parts = new Map();  // step of a container -> its actions
    cells.forEach((cell, step) => this.setAction(step, cell));
    this.computeSteps = Int32Array.from(this.stepsWhere(isCompute));
  }

  setAction(step, cell) {
    if (cell.startsWith('(')) {
      const inside = cell.slice(1, cell.indexOf(')'));
      this.parts.set(step, inside.split(';').map(parseSimpleAction));
      this.kind[step] = Kind.Overlap;
      this.stage[step] = -1;
      this.microbatch[step] = -1;
      return;
    }
    const action = parseSimpleAction(cell);
    this.kind[step] = action.kind;
    this.stage[step] = action.stage;
    this.microbatch[step] = action.microbatch;
  }

  stepsWhere(accepts) {
    const steps = [];
    for (let step = 0; step < this.length; ++step) {
      if (accepts(this.kind[step])) steps.push(step);
    }
    return steps;
  }

  forEachPart(step, visit) {
    if (this.kind[step] !== Kind.Overlap) {
      visit(this.kind[step], this.stage[step], this.microbatch[step]);
      return;
    }
    for (const part of this.parts.get(step)) visit(part.kind, part.stage, part.microbatch);
  }

  text(step) {
    const texts = [];
    this.forEachPart(step, (...part) => texts.push(actionText(...part)));
    return this.kind[step] === Kind.Overlap ? `(${texts.join(';')})OVERLAP_F_B` : texts[0];
  }
}

function actionText(kind, stage, microbatch) {
  return `${stage}${KIND_TEXTS[kind]}${microbatch < 0 ? '' : microbatch}`;
}

class Program {
  constructor(csv) {
    const lines = csv.split('\n');
    lines.pop();  // what follows the last line end
    this.ranks = lines.map((line) => new RankProgram(line === '' ? [] : line.split(',')));
    this.numStages = 0;
    this.numMicrobatches = 0;
    this.rankOfStage = [];
    this.kinds = new Set();
    this.ranks.forEach((rank, number) => this.addRank(rank, number));
  }

  addRank(rank, number) {
    for (let step = 0; step < rank.length; ++step) {
      this.kinds.add(rank.kind[step]);
      rank.forEachPart(step, (kind, stage, microbatch) => {
        this.kinds.add(kind);
        this.numStages = Math.max(this.numStages, stage + 1);
        this.numMicrobatches = Math.max(this.numMicrobatches, microbatch + 1);
        this.rankOfStage[stage] ??= number;
      });
    }
  }

  stagesOf(rank) {
    const stages = [];
    this.rankOfStage.forEach((owner, stage) => { if (owner === rank) stages.push(stage); });
    return stages;
  }

  text(position) {
    return this.ranks[position.rank].text(position.step);
  }
}
