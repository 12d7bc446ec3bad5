// What a rank holds while it goes through its actions, as internal/memory_meter.h counts it.
class MemoryMeter {
  constructor(program, costs, rank) {
    const stages = program.stagesOf(rank);
    this.actions = program.ranks[rank];
    this.costs = costs;
    this.numStages = Math.max(1, stages.length);
    this.keepsActivations = false;  // for a backward; without one, nothing outlives its forward
    for (const step of this.actions.computeSteps) {
      this.actions.forEachPart(step, (kind) => { this.keepsActivations ||= makesInputGradient(kind); });
    }
    this.activations = 0;  // (stage, microbatch) pairs
    this.peakActivations = 0;
    this.bytes = stages.reduce((sum, stage) => sum + stageCost(costs, stage).parameter_bytes, 0);
    this.peakBytes = this.bytes;
  }

  // What an action makes room for before it starts.
  begin(step) {
    this.actions.forEachPart(step, (kind, stage) => {
      if (kind !== Kind.F) return;
      ++this.activations;
      this.bytes += stageCost(this.costs, stage).activation_bytes;
    });
    this.peakActivations = Math.max(this.peakActivations, this.activations);
    this.peakBytes = Math.max(this.peakBytes, this.bytes);
  }

  // What it leaves behind and what it gives back.
  end(step) {
    this.actions.forEachPart(step, (kind, stage) => {
      const cost = stageCost(this.costs, stage);
      if (kind === Kind.F && !this.keepsActivations) {
        this.bytes -= cost.activation_bytes;
        --this.activations;
      }
      // A B is an I and a W: in its middle it holds what lies between the two.
      if (makesInputGradient(kind)) {
        this.bytes += cost.weight_gradient_bytes - cost.activation_bytes;
        this.peakBytes = Math.max(this.peakBytes, this.bytes);
      }
      if (makesWeightGradient(kind)) {
        this.bytes -= cost.weight_gradient_bytes;
        --this.activations;
      }
    });
  }
}

function peaks(program, costs, rank) {
  const meter = new MemoryMeter(program, costs, rank);
  for (const step of program.ranks[rank].computeSteps) {
    meter.begin(step);
    meter.end(step);
  }
  return { peakActivations: meter.peakActivations / meter.numStages, peakBytes: meter.peakBytes };
}

// How the memory of a rank changes: `bytes[k]` from `time[k]` on.
function memoryCurve(program, timeline, costs, rank) {
  const meter = new MemoryMeter(program, costs, rank);
  const { computeSteps } = program.ranks[rank];
  const times = timeline.times[rank];
  const curve = {
    time: new Float64Array(2 * computeSteps.length + 1),
    bytes: new Float64Array(2 * computeSteps.length + 1),
  };
  curve.bytes[0] = meter.bytes;
  computeSteps.forEach((step, index) => {
    meter.begin(step);
    curve.time[2 * index + 1] = times.start[step];
    curve.bytes[2 * index + 1] = meter.bytes;
    meter.end(step);
    curve.time[2 * index + 2] = times.end[step];
    curve.bytes[2 * index + 2] = meter.bytes;
  });
  return curve;
}
