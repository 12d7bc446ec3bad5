// One schedule of the report: its program, its costs of the moment and what follows from them.
class Model {
  constructor(entry) {
    this.name = entry.name;
    this.shape = entry.shape;
    this.givenCostText = entry.cost_text;
    this.givenCosts = entry.costs;
    this.figures = entry.figures;
    this.program = new Program(entry.program);
    this.countsActivations = countsActivations(entry.costs);
    this.measuredTimes = entry.measured_times?.map((times) => RankTimes.from(times));
    this.isRounded = this.measuredTimes !== undefined;  // or its costs were measured
    this.showGiven();
  }

  // What the program wrote into the page: a measured run, or a simulation with the given costs.
  showGiven() {
    if (this.measuredTimes) this.show(makeTimeline(this.program, this.measuredTimes, this.givenCosts), this.givenCosts);
    else this.simulateWith(this.givenCosts);
    this.isMeasured = this.measuredTimes !== undefined;
  }

  simulateWith(costs) {
    this.show(simulate(this.program, costs), costs);
    this.isMeasured = false;
  }

  show(timeline, costs) {
    this.costs = costs;
    this.timeline = timeline;
    this.curves = [];
    this.transfers = [];
    this.pathSteps = null;
    this.path = null;
  }

  get peakBytes() { return Math.max(...this.timeline.ranks.map((usage) => usage.peakBytes)); }
  get peakActivations() { return Math.max(...this.timeline.ranks.map((usage) => usage.peakActivations)); }

  // What the memory of a rank is counted in: bytes, or, where the costs have no sizes, activations.
  // One activation is a microbatch on all stages of the rank.
  memoryUnit(rank) {
    return this.countsActivations ? Math.max(1, this.program.stagesOf(rank).length) : 1;
  }

  get peakMemory() {
    return Math.max(...this.timeline.ranks.map((usage, rank) => usage.peakBytes / this.memoryUnit(rank)));
  }

  memoryCurve(rank) {
    this.curves[rank] ??= memoryCurve(this.program, this.timeline, this.costs, rank);
    return this.curves[rank];
  }

  wholePath() { return criticalPath(this.timeline); }

  // The computing actions of the critical path, first to last.
  get pathCells() {
    if (!this.path) {
      this.path = this.wholePath()
        .filter(({ rank, step }) => isCompute(this.program.ranks[rank].kind[step]));
      this.pathSteps = this.program.ranks.map(() => new Set());
      for (const { rank, step } of this.path) this.pathSteps[rank].add(step);
    }
    return this.path;
  }

  isOnPath(rank, step) {
    return this.pathCells.length > 0 && this.pathSteps[rank].has(step);
  }

  // A simulation is never called measured, whatever the run is called that its costs are from.
  get shownName() {
    return this.measuredTimes && !this.isMeasured ? `${this.name.replace(/, measured$/, '')}, simulated` : this.name;
  }

  get costText() {
    if (!this.isRounded) return this.givenCostText;
    return this.givenCostText.replace(/\d+\.\d+/g, (number) => Number(Number(number).toPrecision(4)));
  }

  formatTime(time) { return this.isRounded ? formatRoundedMs(time) : formatMs(time); }

  // Where the times come from, or which costs they come from.
  get originText() {
    if (this.isMeasured) return 'measured';
    return this.costs === this.givenCosts ? this.costText : 'simulated with the costs above';
  }

  // Whether gathers and reductions can be seen: a run without sharding has them, but they take no time.
  hasParameterTimes() {
    const leastVisible = this.timeline.makespan / 2000;
    return this.program.ranks.some((actions, rank) => actions.kind.some((kind, step) => {
      const times = this.timeline.times[rank];
      return kind >= Kind.Unshard && times.end[step] - times.start[step] > leastVisible;
    }));
  }

  hasTransferTimes() {
    return this.isMeasured || this.costs.hop_latency > 0 || this.costs.bytes_per_second > 0
      || this.costs.stages.some((cost) => cost.unshard > 0 || cost.reduce_grad > 0);
  }

  // Values that some rank waits for, from their send to their arrival, and gathers and reductions.
  transfersInto(rank) {
    this.transfers[rank] ??= this.findTransfers(rank);
    return this.transfers[rank];
  }

  findTransfers(rank) {
    const actions = this.program.ranks[rank];
    const times = this.timeline.times[rank];
    const found = [];
    for (let step = 0; step < actions.length; ++step) {
      if (times.end[step] <= times.start[step]) continue;
      if (actions.kind[step] >= Kind.Unshard) {
        found.push({ start: times.start[step], end: times.end[step], colour: 'parameters' });
      } else if (isReceive(actions.kind[step])) {
        const send = times.causeOf(step);
        found.push({ start: this.timeline.times[send.rank].end[send.step], end: times.end[step], colour: 'transfer' });
      }
    }
    return found;
  }

  // The index, among the computing actions of `rank`, of the one that ends after `time`.
  indexAt(rank, time) {
    const steps = this.program.ranks[rank].computeSteps;
    const { end } = this.timeline.times[rank];
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end[steps[middle]] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  firstPosition() {
    const rank = this.program.ranks.findIndex((actions) => actions.computeSteps.length > 0);
    return rank < 0 ? null : { rank, step: this.program.ranks[rank].computeSteps[0] };
  }

  // `distance` computing actions further on the same rank, as far as there are any.
  neighbour({ rank, step }, distance) {
    const steps = this.program.ranks[rank].computeSteps;
    const index = Math.min(Math.max(steps.indexOf(step) + distance, 0), steps.length - 1);
    return { rank, step: steps[index] };
  }

  // What `rank` does in the middle of an action of another rank, or does next.
  sameTimeOn(rank, { rank: fromRank, step }) {
    if (rank < 0 || rank >= this.program.ranks.length) return null;
    const steps = this.program.ranks[rank].computeSteps;
    if (steps.length === 0) return null;
    const times = this.timeline.times[fromRank];
    const index = this.indexAt(rank, (times.start[step] + times.end[step]) / 2);
    return { rank, step: steps[Math.min(index, steps.length - 1)] };
  }

  // The computing action whose result the action waited for, or that came before it.
  waitedFor({ rank, step }) {
    const source = sourceOfWait(this.program, this.timeline, rank, step);
    const isThere = source && isCompute(this.program.ranks[source.rank].kind[source.step]);
    return isThere ? source : this.neighbour({ rank, step }, -1);
  }

  // Where the figures of this page differ from those that the program computed; empty if nowhere.
  disagreements() {
    const { figures, timeline } = this;
    const ours = {
      makespan: timeline.makespan,
      longest_span: timeline.longestSpan,
      makespan_bubble: timeline.makespanBubble,
      span_bubble: timeline.spanBubble,
      busy: timeline.ranks.map((usage) => usage.busy),
      idle: timeline.ranks.map((usage) => usage.idle),
      peak_activations: timeline.ranks.map((usage) => usage.peakActivations),
      peak_bytes: timeline.ranks.map((usage) => usage.peakBytes),
    };
    return Object.keys(ours).filter((key) => JSON.stringify(ours[key]) !== JSON.stringify(figures[key]));
  }
}
