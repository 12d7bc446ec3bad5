// The timeline of one schedule: how it is drawn. timeline_input.js has how it is operated.
const STRIP = 4;  // height of the transfers and parameter actions under the cells

const KIND_COLOURS = { [Kind.F]: 'f', [Kind.B]: 'b', [Kind.I]: 'i', [Kind.W]: 'w' };

// For a font size of 1: an estimate that holds for the usual sans-serif fonts.
const labelWidth = (text) => text.length * 0.63 + (text.includes('W') ? 0.37 : 0);

class TimelineChart extends Picture {
  constructor(model, view, settings) {
    const numRanks = model.program.ranks.length;
    super(view, numRanks, Math.max(3, Math.min(34, Math.floor(680 / numRanks))));
    this.model = model;
    this.settings = settings;
    this.selected = null;  // {rank, step}
    this.hovered = null;
    this.canvas.className = 'timeline';
  }

  get hasStrip() {
    return this.settings.showTransfers && this.lane >= 14 && this.model.hasTransferTimes();
  }
  get cellHeight() {
    return this.lane - this.laneGap() - (this.hasStrip ? STRIP + 1 : 0);
  }

  draw() {
    this.hatch = this.makeHatch();
    this.isDimmed = this.settings.showPath;
    for (let rank = 0; rank < this.numRanks; ++rank) {
      this.drawLane(rank);
      if (this.hasStrip) this.drawStrip(rank);
    }
    if (this.settings.showPath) this.drawPath();
    for (const marked of [this.hovered, this.selected]) if (marked) this.drawFrame(marked);
  }

  makeHatch() {
    const tile = make('canvas', { width: 6, height: 6 });
    const context = tile.getContext('2d');
    context.fillStyle = this.colour('w');
    context.fillRect(0, 0, 6, 6);
    context.strokeStyle = this.colour('w-hatch');
    context.lineWidth = 1.25;
    context.beginPath();
    for (const offset of [-6, 0, 6]) {
      context.moveTo(offset - 1, 7);
      context.lineTo(offset + 7, -1);
    }
    context.stroke();
    return this.context.createPattern(tile, 'repeat');
  }

  drawLane(rank) {
    const steps = this.model.program.ranks[rank].computeSteps;
    const times = this.model.timeline.times[rank];
    let lastPixel = -1;  // cells that share a pixel with the one before are left out
    for (let index = this.firstVisible(rank); index < steps.length; ++index) {
      const step = steps[index];
      if (times.start[step] >= this.view.end) break;
      const x = this.xAt(times.start[step]);
      const end = this.xAt(times.end[step]);
      if (end < lastPixel + 1) continue;
      lastPixel = Math.floor(end);
      this.drawCell(rank, step, x, end - x);
    }
  }

  // The index of the first computing action that ends after the start of the view.
  firstVisible(rank) {
    const steps = this.model.program.ranks[rank].computeSteps;
    const { end } = this.model.timeline.times[rank];
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end[steps[middle]] <= this.view.start) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The parts of a container run together: they share the height of the lane.
  drawCell(rank, step, x, width) {
    const actions = this.model.program.ranks[rank];
    const isPair = actions.kind[step] === Kind.Overlap;
    const height = this.cellHeight / (isPair ? actions.parts.get(step).length : 1);
    const gap = width > 4 ? 1 : 0;
    let y = this.laneTop(rank);
    this.context.globalAlpha = this.isDimmed && !this.model.isOnPath(rank, step) ? 0.3 : 1;
    actions.forEachPart(step, (kind, stage, microbatch) => {
      this.context.fillStyle = kind === Kind.W ? this.hatch : this.colour(KIND_COLOURS[kind]);
      this.context.fillRect(x, y, Math.max(0.75, width - gap), height);
      this.drawLabel(kind, stage, microbatch, x, y, width - gap, height);
      y += height;
    });
    this.context.globalAlpha = 1;
    if (!isPair || width < 6) return;
    this.context.strokeStyle = this.colour('text');
    this.context.lineWidth = 1;
    this.context.strokeRect(x + 0.5, this.laneTop(rank) + 0.5, width - gap - 1, this.cellHeight - 1);
  }

  // On one line if it fits, else as stage and kind over the microbatch, else not at all.
  drawLabel(kind, stage, microbatch, x, y, width, height) {
    if (width < 10 || height < 9) return;
    const { context } = this;
    const whole = actionText(kind, stage, microbatch);
    const head = `${stage}${KIND_TEXTS[kind]}`;
    const tail = String(microbatch);
    const fits = (text, size) => labelWidth(text) * size <= width - 2;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    const centerX = x + width / 2;
    const centerY = y + height / 2 + 0.5;
    const lineSizes = [12, 11, 10, 9].filter((size) => size <= height - 1);
    const size = lineSizes.find((candidate) => fits(whole, candidate));
    if (size) {
      this.setFont(size);
      this.drawText(kind, whole, centerX, centerY);
      return;
    }
    const half = [11, 10, 9, 8].find((candidate) => 2 * candidate <= height - 3
      && fits(head, candidate) && fits(tail, candidate));
    if (!half) return;
    this.setFont(half);
    this.drawText(kind, head, centerX, centerY - half * 0.55);
    this.drawText(kind, tail, centerX, centerY + half * 0.55);
  }

  // Over a hatched cell, the text keeps the lines away from itself.
  drawText(kind, text, x, y) {
    const { context } = this;
    if (kind === Kind.W) {
      context.strokeStyle = this.colour('w');
      context.lineWidth = 3;
      context.strokeText(text, x, y);
    }
    context.fillStyle = kind === Kind.F ? '#ffffff' : '#14181d';
    context.fillText(text, x, y);
  }

  // Values on their way to this rank, and gathers and reductions, under the cells.
  drawStrip(rank) {
    const y = this.laneTop(rank) + this.cellHeight + 1;
    const draw = (start, end, colour) => {
      if (end <= this.view.start || start >= this.view.end || end <= start) return;
      this.context.fillStyle = this.colour(colour);
      this.context.fillRect(this.xAt(start), y, Math.max(0.75, this.xAt(end) - this.xAt(start)), STRIP);
    };
    for (const transfer of this.model.transfersInto(rank)) draw(transfer.start, transfer.end, transfer.colour);
  }

  // Frames around the computing actions of the path, joined from each to the next.
  drawPath() {
    const { context, model } = this;
    const cells = model.pathCells;
    context.strokeStyle = this.colour('path');
    context.lineWidth = 2;
    context.beginPath();
    let before = null;
    for (const { rank, step } of cells) {
      const times = model.timeline.times[rank];
      if (times.start[step] > this.view.end) break;
      const isVisible = times.end[step] >= this.view.start;
      if (isVisible && before && before.rank !== rank) {
        const end = model.timeline.times[before.rank].end[before.step];
        context.moveTo(this.xAt(end), this.laneTop(before.rank) + this.cellHeight / 2);
        context.lineTo(this.xAt(times.start[step]), this.laneTop(rank) + this.cellHeight / 2);
      }
      if (isVisible) this.addPathCell(rank, step);
      before = { rank, step };
    }
    context.stroke();
  }

  // Narrow cells get no sides: together they would be one black block.
  addPathCell(rank, step) {
    const times = this.model.timeline.times[rank];
    const x = this.xAt(times.start[step]);
    const end = this.xAt(times.end[step]);
    if (end - x >= 8) {
      this.addFrame(rank, step, 1);
      return;
    }
    for (const y of [this.laneTop(rank), this.laneTop(rank) + this.cellHeight]) {
      this.context.moveTo(x, y);
      this.context.lineTo(end, y);
    }
  }

  addFrame(rank, step, inset) {
    const times = this.model.timeline.times[rank];
    const x = this.xAt(times.start[step]);
    const width = Math.max(1, this.xAt(times.end[step]) - x);
    this.context.rect(x + inset, this.laneTop(rank) + inset, Math.max(1, width - 2 * inset),
      this.cellHeight - 2 * inset);
  }

  drawBeside() {
    const { ranks, makespan } = this.model.timeline;
    this.drawFigures('idle', (rank) => `${(idleSum(ranks[rank]) / Math.max(1, makespan) * 100).toFixed(1)} %`);
  }

  drawFrame({ rank, step }) {
    const isSelected = this.selected && this.selected.rank === rank && this.selected.step === step;
    for (const [colour, width] of [['card', 4], [isSelected ? 'accent' : 'text', 2]]) {
      this.context.strokeStyle = this.colour(colour);
      this.context.lineWidth = width;
      this.context.beginPath();
      this.addFrame(rank, step, 0);
      this.context.stroke();
    }
  }
}
