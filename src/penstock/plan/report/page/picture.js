// A canvas with one lane per rank and a time axis on top; only what can be seen is drawn.
const GUTTER = 64;  // for the labels of the ranks
const RIGHT = 76;   // for one figure per rank
const AXIS = 24;

class Picture {
  constructor(view, numRanks, lane) {
    this.view = view;
    this.numRanks = numRanks;
    this.lane = lane;
    this.canvas = make('canvas');
    this.context = this.canvas.getContext('2d');
    this.width = 0;
    this.height = AXIS + lane * numRanks;
    this.canvas.style.height = `${this.height}px`;
    this.isVisible = false;
    this.isDue = false;
    view.addEventListener('change', () => this.requestDraw());
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    new IntersectionObserver((changes) => {
      this.isVisible = changes[changes.length - 1].isIntersecting;
      this.requestDraw();
    }, { rootMargin: '100px' }).observe(this.canvas);
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.requestDraw();
  }

  requestDraw() {
    if (this.isDue || !this.isVisible) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.drawAll();
    });
  }

  get laneWidth() { return Math.max(1, this.width - GUTTER - RIGHT); }
  xAt(time) { return GUTTER + (time - this.view.start) / this.view.length * this.laneWidth; }
  timeAt(x) { return this.view.start + (x - GUTTER) / this.laneWidth * this.view.length; }
  laneTop(rank) { return AXIS + rank * this.lane; }
  rankAt(y) { return Math.floor((y - AXIS) / this.lane); }

  colour(name) {
    return this.style.getPropertyValue(`--${name}`).trim();
  }

  setFont(size, weight = 400) {
    this.context.font = `${weight} ${size}px ${this.style.fontFamily}`;
  }

  drawAll() {
    if (this.width === 0) return;
    const { context } = this;
    const ratio = this.canvas.width / this.width;
    this.style = getComputedStyle(this.canvas);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.drawRanks();
    this.drawAxis();
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.laneWidth, this.height);
    context.clip();
    this.draw();
    context.restore();
    this.drawBeside();
  }

  drawRanks() {
    const { context } = this;
    const gap = this.laneGap();
    const every = Math.ceil(14 / this.lane);
    this.setFont(12);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let rank = 0; rank < this.numRanks; ++rank) {
      context.fillStyle = this.colour('lane');
      context.fillRect(GUTTER, this.laneTop(rank), this.laneWidth, this.lane - gap);
      if (rank % every !== 0) continue;
      context.fillStyle = this.colour('muted');
      context.fillText(`rank ${rank}`, GUTTER - 10, this.laneTop(rank) + (this.lane - gap) / 2);
    }
  }

  laneGap() { return this.lane >= 12 ? 3 : this.lane >= 6 ? 1 : 0; }

  drawAxis() {
    const { context, view } = this;
    const step = niceStep(90 / this.laneWidth * view.length);
    this.setFont(11);
    context.textAlign = 'center';
    context.textBaseline = 'alphabetic';
    for (let mark = Math.ceil(view.start / step) * step; mark <= view.end; mark += step) {
      const x = Math.round(this.xAt(mark)) + 0.5;
      context.fillStyle = this.colour('grid');
      context.fillRect(x - 0.5, AXIS - 6, 1, this.height - AXIS + 6);
      context.fillStyle = this.colour('muted');
      context.fillText(formatMs(mark), x, AXIS - 10);
    }
  }

  // One figure per rank, after its lane.
  drawFigures(heading, figureOf) {
    const { context } = this;
    const x = this.width - 4;
    const every = Math.ceil(14 / this.lane);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillStyle = this.colour('text');
    this.setFont(12);
    for (let rank = 0; rank < this.numRanks; rank += every) {
      context.fillText(figureOf(rank), x, this.laneTop(rank) + (this.lane - this.laneGap()) / 2);
    }
    context.fillStyle = this.colour('muted');
    context.textBaseline = 'alphabetic';
    this.setFont(11);
    context.fillText(heading, x, AXIS - 10);
  }

  draw() {}
  drawBeside() {}
}
