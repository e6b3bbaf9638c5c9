#include "models/tiny_layout.h"

#include "models/arch.h"

namespace mlxcel {

StateLayout tiny_layout(const ArchEntry& entry) {
  StateLayout layout;
  if (entry.kind == "encoder") return layout;
  for (const NamedArch& named : arch_table())
    if (named.family == entry.family)
      (void)named.arch.build(Config::parse(entry.tiny, entry.family + ".tiny"), Weights::record(layout));
  return layout;
}

}  // namespace mlxcel
