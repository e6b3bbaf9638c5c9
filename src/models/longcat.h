// LongCat-Flash: two attention and MLP pairs a layer; the experts read beside the first MLP and their answer
// is added at the layer's end. Some experts give their input back. Thread: the loading thread.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/arch.h"
#include "models/decoder.h"
#include "nn/ngram.h"
#include "nn/weights.h"

namespace mlxcel {

Dims longcat_dims(const Config& config);

/// `embedding`: where the table of tokens stands. `ngrams` are mixed into it before the first layer.
Decoder longcat_decoder(const Config& config, const Weights& w, const char* embedding = "model.embed_tokens",
                        const std::optional<NgramMix>& ngrams = std::nullopt);

std::vector<Rule> longcat_rules(const Config& config);
/// One dense layer with a single attention. Reference: vLLM's longcat_flash_mtp.
MtpArch longcat_mtp();

}  // namespace mlxcel
