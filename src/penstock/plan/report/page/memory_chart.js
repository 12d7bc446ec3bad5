// The memory of every rank over time, all on one scale.
class MemoryChart extends Picture {
  constructor(model, view, settings) {
    const numRanks = model.program.ranks.length;
    super(view, numRanks, Math.max(3, Math.min(34, Math.floor(480 / numRanks))));
    this.model = model;
    this.settings = settings;
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label',
      `Memory of each rank of ${model.name} over time; the peaks are in the table of idle time`);
    this.canvas.addEventListener('pointermove', (event) => this.onPointerMove(event));
    this.canvas.addEventListener('pointerleave', () => tooltip.hide());
  }

  formatAmount(amount) {
    return this.model.countsActivations ? formatCount(amount) : formatBytes(amount);
  }

  draw() {
    for (let rank = 0; rank < this.numRanks; ++rank) this.drawCurve(rank);
  }

  // The index of the curve's point that holds at `time`.
  pointAt(rank, time) {
    const curve = this.model.memoryCurve(rank);
    let low = 0;
    let high = curve.time.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (curve.time[middle] <= time) low = middle;
      else high = middle;
    }
    return low;
  }

  drawCurve(rank) {
    const { context } = this;
    const curve = this.model.memoryCurve(rank);
    const height = this.lane - this.laneGap();
    const bottom = this.laneTop(rank) + height;
    const scale = height / Math.max(1, this.settings.peakMemory) / this.model.memoryUnit(rank);
    const first = this.pointAt(rank, this.view.start);
    let x = this.xAt(Math.max(this.view.start, curve.time[first]));
    let y = bottom - curve.bytes[first] * scale;
    context.beginPath();
    context.moveTo(x, bottom);
    context.lineTo(x, y);
    for (let index = first + 1; index < curve.time.length; ++index) {
      x = this.xAt(Math.min(this.view.end, curve.time[index]));
      context.lineTo(x, y);
      if (curve.time[index] > this.view.end) break;
      y = bottom - curve.bytes[index] * scale;
      context.lineTo(x, y);
    }
    const end = Math.min(this.view.end, this.model.timeline.makespan);
    context.lineTo(Math.max(x, this.xAt(end)), y);
    context.lineTo(Math.max(x, this.xAt(end)), bottom);
    context.fillStyle = this.colour('warm-up');
    context.globalAlpha = 0.45;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = this.colour('accent');
    context.lineWidth = this.lane >= 10 ? 1.25 : 0.75;
    context.stroke();
  }

  drawBeside() {
    this.drawFigures('peak', (rank) => this.formatAmount(this.model.timeline.ranks[rank].peakBytes / this.model.memoryUnit(rank)));
  }

  onPointerMove(event) {
    const rank = this.rankAt(event.offsetY);
    const time = this.timeAt(event.offsetX);
    const isInside = rank >= 0 && rank < this.numRanks && event.offsetX >= GUTTER && time >= 0
      && time <= this.model.timeline.makespan;
    if (!isInside) {
      tooltip.hide();
      return;
    }
    const amount = this.model.memoryCurve(rank).bytes[this.pointAt(rank, time)] / this.model.memoryUnit(rank);
    const unit = this.model.countsActivations ? (amount === 1 ? ' activation' : ' activations') : '';
    tooltip.show([`${this.formatAmount(amount)}${unit}`,
      `rank ${rank} at ${(time / NANOSECONDS_PER_MS).toFixed(3)} ms`], event.clientX, event.clientY);
  }
}
