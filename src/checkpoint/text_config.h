// The configuration of a checkpoint's language model. Thread: any.
#pragma once

#include "checkpoint/config.h"

namespace mlxcel {

/// `text_config` where a model of several modalities has one, else the whole.
inline Config text_config(const Config& config) {
  return config.is_object("text_config") ? config.child("text_config") : config;
}

}  // namespace mlxcel
