// Puts the page together.

// The part of the page about one schedule.
class ScheduleCard {
  constructor(model, view, settings) {
    this.model = model;
    this.timeline = new TimelineChart(model, view, settings);
    this.input = new TimelineInput(this.timeline);
    this.memory = new MemoryChart(model, view, settings);
    this.title = make('h2');
    this.origin = make('span', { className: 'muted origin' });
    this.figures = make('div');
    this.ledger = make('div', { className: 'scroll' });
    const unit = model.countsActivations
      ? 'activations held from F to I or B; one is a microbatch on all stages of its rank; one scale for all'
      : 'activations and parameters, without gradients and optimizer; one scale for all';
    const section = (name, title, note, content) => make('section', { className: name },
      make('h3', {}, title, make('small', {}, note)), content);
    this.element = make('article', { className: 'schedule' },
      make('header', {}, this.title, this.origin),
      this.figures,
      this.timeline.canvas,
      section('memory', 'Memory', unit, this.memory.canvas),
      section('ledger', 'Ledger', 'idle time in ms; every idle moment has one cause, and idle + busy = makespan', this.ledger));
  }

  update(idleScale) {
    this.title.textContent = this.model.shownName;
    this.origin.textContent = `${this.model.shape}; ${this.model.originText}`;
    this.figures.replaceChildren(makeFigures(this.model));
    this.ledger.replaceChildren(makeLedger(this.model, idleScale));
    this.timeline.requestDraw();
    this.memory.requestDraw();
  }
}

class Report {
  constructor(data) {
    this.models = data.entries.map((entry) => new Model(entry));
    const isMeasured = this.models.some((model) => model.measuredTimes);
    for (const model of this.models) model.isRounded = isMeasured;
    // A measured run is what it is; where a simulation stands next to it, that one follows the controls.
    this.movable = this.models.every((model) => model.measuredTimes) ? this.models
      : this.models.filter((model) => !model.measuredTimes);
    this.view = new TimeView();
    this.settings = { showPath: false, showTransfers: true, peakMemory: 1 };
    this.cards = this.models.map((model) => new ScheduleCard(model, this.view, this.settings));
    byId('schedules').append(...this.cards.map((card) => card.element));
    this.describeCosts();
    byId('comparison').hidden = this.models.length === 1;
    byId('columns-choice').hidden = this.models.length === 1;
    this.given = sliderValues(this.models[0].givenCosts);
    this.shownCosts = this.given;
    this.costs = new CostControls(this.given, (values) => this.simulateWith(values));
    this.connectViewControls();
    this.makeLegend();
    this.checkFigures();
    this.update();
  }

  describeCosts() {
    const [first] = this.models;
    const isShared = this.models.every((model) => model.costText === first.costText);
    byId('given-costs').textContent = isShared ? first.costText
      : `Every schedule has costs of its own. The controls show those of ${first.name}; the others change in proportion.`;
  }

  simulateWith(values) {
    const isGiven = COST_FIELDS.every(({ key }) => values[key] === this.given[key]);
    for (const model of this.movable) {
      if (isGiven) model.showGiven();
      else model.simulateWith(changeCosts(model.givenCosts, this.given, values));
    }
    this.shownCosts = values;
    this.update();
    announce(this.movable.map((model) => `${model.shownName}: makespan ${model.formatTime(model.timeline.makespan)}, `
      + `bubble ${formatPercent(model.timeline.makespanBubble)} (makespan), `
      + `${formatPercent(model.timeline.spanBubble)} (span)`));
  }

  update() {
    const idle = this.models.flatMap((model) => model.timeline.ranks.map(idleSum));
    const idleScale = Math.max(1, ...idle);
    this.settings.peakMemory = Math.max(...this.models.map((model) => model.peakMemory));
    this.view.setLimit(Math.max(...this.models.map((model) => model.timeline.makespan)));
    byId('comparison-table').replaceChildren(makeComparison(this.models));
    for (const card of this.cards) card.update(idleScale);
  }

  connectViewControls() {
    const onClick = (id, action) => byId(id).addEventListener('click', action);
    onClick('zoom-in', () => this.view.zoom(1.5));
    onClick('zoom-out', () => this.view.zoom(1 / 1.5));
    onClick('pan-left', () => this.view.pan(-0.25));
    onClick('pan-right', () => this.view.pan(0.25));
    onClick('zoom-reset', () => this.view.reset());
    const onToggle = (id, apply) => byId(id).addEventListener('change', (event) => {
      apply(event.target.checked);
      for (const card of this.cards) card.timeline.requestDraw();
    });
    onToggle('show-path', (isOn) => { this.settings.showPath = isOn; });
    onToggle('show-transfers', (isOn) => { this.settings.showTransfers = isOn; });
    const { classList } = byId('schedules');
    onToggle('show-memory', (isOn) => classList.toggle('without-memory', !isOn));
    onToggle('show-ledger', (isOn) => classList.toggle('without-ledger', !isOn));
    onToggle('show-columns', (isOn) => classList.toggle('columns', isOn));
    this.view.addEventListener('change', () => this.showRange());
    window.addEventListener('beforeprint', () => {
      for (const card of this.cards) for (const picture of [card.timeline, card.memory]) picture.drawAll();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.update());
  }

  showRange() {
    const digits = this.view.length < 100 * NANOSECONDS_PER_MS ? 3 : 1;
    const text = (time) => Number((time / NANOSECONDS_PER_MS).toFixed(digits));
    byId('view-range').textContent = `${text(this.view.start)} to ${text(this.view.end)} ms`;
  }

  makeLegend() {
    const has = (...kinds) => this.models.some((model) => kinds.some((kind) => model.program.kinds.has(kind)));
    const keys = [
      [has(Kind.F), 'fill-f', 'F forward'],
      [has(Kind.B), 'fill-b', 'B backward'],
      [has(Kind.I), 'fill-i', 'I input gradient'],
      [has(Kind.W), 'fill-w', 'W weight gradient'],
      [has(Kind.Overlap), 'fill-pair', 'pair that runs together'],
      [true, 'fill-idle', 'idle'],
      [has(Kind.SendF, Kind.SendB), 'thin fill-transfer', 'value on its way to the rank'],
      [this.models.some((model) => model.hasParameterTimes()), 'thin fill-parameters', 'parameters gathered, gradients reduced'],
    ];
    byId('legend').append(...keys.filter(([isUsed]) => isUsed)
      .map(([, fill, text]) => make('span', {}, make('span', { className: `swatch ${fill}` }), text)));
  }

  // The page must show what the program computed; if it ever does not, it says so.
  checkFigures() {
    const wrong = this.models.flatMap((model) => model.disagreements().map((key) => `${key} of ${model.name}`));
    document.documentElement.dataset.agrees = String(wrong.length === 0);
    if (wrong.length === 0) return;
    byId('disagreement').hidden = false;
    byId('disagreement').textContent = `This page computes other figures than the program that wrote it: ${wrong.join(', ')}.`;
  }
}

// In reach of the console, and of the tests.
globalThis.penstockReport = new Report(JSON.parse(byId('report-data').textContent));
