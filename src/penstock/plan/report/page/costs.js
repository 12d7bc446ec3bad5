// Cost models, and the sliders' changes to them. All times are whole nanoseconds.

function stageCost(costs, stage) {
  return costs.stages.length === 1 ? costs.stages[0] : costs.stages[stage];
}

function computeTime(costs, kind, stage) {
  const cost = stageCost(costs, stage);
  switch (kind) {
    case Kind.F: return cost.forward;
    case Kind.B: return cost.full_backward;
    case Kind.I: return cost.input_backward;
    case Kind.W: return cost.weight_backward;
    default: return 0;
  }
}

// The time of the action at `step`; a container takes `overlap_factor` times the sum of its parts.
function actionTime(costs, rank, step) {
  let sum = 0;
  rank.forEachPart(step, (kind, stage) => { sum += computeTime(costs, kind, stage); });
  return rank.kind[step] === Kind.Overlap ? Math.round(sum * costs.overlap_factor) : sum;
}

function wireTime(costs, kind, stage) {
  if (costs.bytes_per_second <= 0) return 0;
  const cost = stageCost(costs, stage);
  const bytes = kind === Kind.SendF ? cost.output_bytes : cost.input_gradient_bytes;
  return Math.round(bytes / costs.bytes_per_second * 1e9);
}

// What the sliders show for given costs: means over the stages.
function sliderValues(costs) {
  const mean = (field) => {
    const sum = costs.stages.reduce((total, cost) => total + cost[field], 0);
    return Math.round(sum / costs.stages.length);
  };
  return {
    forward: mean('forward'),
    input: mean('input_backward'),
    weight: mean('weight_backward'),
    hop: costs.hop_latency,
  };
}

function scaleTime(time, from, to) {
  if (from === to) return time;
  return from === 0 ? to : Math.round(time * (to / from));
}

// `costs` with every stage scaled as the sliders moved `from` their given values `to` new ones.
function changeCosts(costs, from, to) {
  const stages = costs.stages.map((cost) => {
    const input = scaleTime(cost.input_backward, from.input, to.input);
    const weight = scaleTime(cost.weight_backward, from.weight, to.weight);
    const isSum = cost.full_backward === cost.input_backward + cost.weight_backward;
    return {
      ...cost,
      forward: scaleTime(cost.forward, from.forward, to.forward),
      input_backward: input,
      weight_backward: weight,
      full_backward: isSum ? input + weight
        : scaleTime(cost.full_backward, from.input + from.weight, to.input + to.weight),
    };
  });
  return { ...costs, stages, hop_latency: scaleTime(costs.hop_latency, from.hop, to.hop) };
}

// Without sizes in the costs, memory is counted in activations instead of bytes.
function countsActivations(costs) {
  return costs.stages.every((cost) => cost.activation_bytes === 1
    && cost.weight_gradient_bytes === 0 && cost.parameter_bytes === 0);
}
