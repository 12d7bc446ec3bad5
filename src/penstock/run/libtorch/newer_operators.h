#pragma once

namespace penstock {

// Defines the operators that this libtorch lacks, but models written by a newer PyTorch call:
// in 1.13 scaled_dot_product_attention (also behind nn.MultiheadAttention and
// nn.TransformerEncoderLayer) and rms_norm. To be called before such a TorchScript file is loaded;
// afterwards it costs nothing.
//
// Safe from any thread.
void define_newer_operators();

}  // namespace penstock
