// How a timeline is operated: pointer, wheel and keyboard.

const tooltip = {
  show(lines, x, y) {
    const element = byId('tooltip');
    const [heading, ...rest] = lines;
    element.replaceChildren(make('strong', {}, heading), ...rest.map((line) => make('div', {}, line)));
    element.hidden = false;
    const box = element.getBoundingClientRect();
    const left = x + 16 + box.width > window.innerWidth ? x - 16 - box.width : x + 16;
    const top = y + 16 + box.height > window.innerHeight ? y - 16 - box.height : y + 16;
    element.style.left = `${Math.max(4, left)}px`;
    element.style.top = `${Math.max(4, top)}px`;
  },
  hide() { byId('tooltip').hidden = true; },
};

function announce(lines) {
  byId('announcement').textContent = lines.join('; ');
}

class TimelineInput {
  constructor(timeline) {
    this.timeline = timeline;
    this.model = timeline.model;
    this.view = timeline.view;
    this.drag = null;
    const { canvas } = timeline;
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    canvas.setAttribute('aria-roledescription', 'timeline');
    canvas.setAttribute('aria-label', `Timeline of ${this.model.name}`);
    canvas.setAttribute('aria-describedby', 'timeline-help');
    canvas.addEventListener('wheel', (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.onPointerDown(event));
    canvas.addEventListener('pointermove', (event) => this.onPointerMove(event));
    canvas.addEventListener('pointerup', (event) => this.onPointerUp(event));
    canvas.addEventListener('pointercancel', () => this.endDrag());
    canvas.addEventListener('pointerleave', () => this.hover(null));
    canvas.addEventListener('keydown', (event) => this.onKey(event));
    canvas.addEventListener('focus', () => { if (canvas.matches(':focus-visible')) this.select(this.model.firstPosition()); });
    canvas.addEventListener('blur', () => this.select(null));
  }

  onWheel(event) {
    event.preventDefault();
    const distance = event.deltaY || event.deltaX;
    if (event.shiftKey) this.view.pan(Math.sign(distance) * 0.1);
    else this.view.zoom(distance < 0 ? 1.25 : 0.8, this.timeline.timeAt(event.offsetX));
    this.hover(event);
  }

  onPointerDown(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.offsetX, start: this.view.start, hasMoved: false };
    this.timeline.canvas.setPointerCapture(event.pointerId);
    this.timeline.canvas.classList.add('dragging');
  }

  onPointerMove(event) {
    if (!this.drag) {
      this.hover(event);
      return;
    }
    const distance = event.offsetX - this.drag.x;
    if (Math.abs(distance) > 3) this.drag.hasMoved = true;
    if (!this.drag.hasMoved) return;
    tooltip.hide();
    const start = this.drag.start - distance / this.timeline.laneWidth * this.view.length;
    this.view.show(start, start + this.view.length);
  }

  onPointerUp(event) {
    const wasClick = this.drag && !this.drag.hasMoved;
    this.endDrag();
    const hit = wasClick ? this.hitAt(event) : null;
    if (hit && !hit.isGap) this.select(hit);
  }

  endDrag() {
    this.drag = null;
    this.timeline.canvas.classList.remove('dragging');
  }

  // The action under the pointer, or the gap before it; after the last one, a gap with step -1.
  hitAt(event) {
    const rank = this.timeline.rankAt(event.offsetY);
    if (rank < 0 || rank >= this.timeline.numRanks || event.offsetX < GUTTER) return null;
    const time = this.timeline.timeAt(event.offsetX);
    if (time < 0 || time > this.model.timeline.makespan) return null;
    const index = this.model.indexAt(rank, time);
    const steps = this.model.program.ranks[rank].computeSteps;
    if (index >= steps.length) return { rank, step: -1, isGap: true };
    const step = steps[index];
    return { rank, step, isGap: time < this.model.timeline.times[rank].start[step] };
  }

  hover(event) {
    const hit = event ? this.hitAt(event) : null;
    this.timeline.hovered = hit && !hit.isGap ? hit : null;
    this.timeline.requestDraw();
    if (!hit) {
      tooltip.hide();
      return;
    }
    const explain = hit.isGap ? explainGap : explainAction;
    tooltip.show(explain(this.model, hit.rank, hit.step), event.clientX, event.clientY);
  }

  select(position) {
    this.timeline.selected = position;
    this.timeline.requestDraw();
    if (!position) {
      tooltip.hide();
      return;
    }
    const times = this.model.timeline.times[position.rank];
    this.view.reveal(times.start[position.step], times.end[position.step]);
    const lines = explainAction(this.model, position.rank, position.step);
    announce(lines);
    const box = this.timeline.canvas.getBoundingClientRect();
    tooltip.show(lines, box.left + this.timeline.xAt(times.end[position.step]),
      box.top + this.timeline.laneTop(position.rank) + this.timeline.cellHeight / 2);
  }

  // Where a key leads from the selected action; undefined if it is not for moving.
  target(key, at) {
    switch (key) {
      case 'ArrowRight': return this.model.neighbour(at, 1);
      case 'ArrowLeft': return this.model.neighbour(at, -1);
      case 'ArrowDown': return this.model.sameTimeOn(at.rank + 1, at);
      case 'ArrowUp': return this.model.sameTimeOn(at.rank - 1, at);
      case 'Home': return this.model.neighbour(at, -Infinity);
      case 'End': return this.model.neighbour(at, Infinity);
      case 'Enter': return this.model.waitedFor(at);
      default: return undefined;
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.timeline.selected ?? this.model.firstPosition();
    if (!at) return;
    const target = this.target(event.key, at);
    if (target !== undefined) this.select(target ?? at);
    else if (event.key === '+' || event.key === '=') this.zoom(1.5, at);
    else if (event.key === '-') this.zoom(1 / 1.5, at);
    else if (event.key === '0') this.view.reset();
    else if (event.key === 'Escape') this.select(null);
    else return;
    event.preventDefault();
  }

  zoom(factor, at) {
    const times = this.model.timeline.times[at.rank];
    this.view.zoom(factor, (times.start[at.step] + times.end[at.step]) / 2);
    announce([`showing ${formatMs(Math.round(this.view.start))} to ${formatMs(Math.round(this.view.end))}`]);
  }
}
