// What the machine has: memory that may still be used, memory this process holds. Thread: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mlxcel {

/// Bytes that can still be taken: available memory of the host or what its control group leaves, whichever
/// is less; MLXCEL_MEMORY_LIMIT (bytes, or with K, M, G) bounds it. 0 where the platform tells nothing.
size_t available_memory();

/// Resident bytes of this process, now and at most.
struct ProcessMemory {
  size_t resident = 0;
  size_t peak = 0;
};
ProcessMemory process_memory();

/// "512M", "1.5G", "4096": bytes; nothing for anything else. Powers of 1024; "GB" and "GiB" mean the same;
/// blanks around it do not count.
std::optional<size_t> parse_bytes(std::string_view text);
/// The same for a limit: 0 (no limit) also for "none" and empty text.
std::optional<size_t> parse_limit(std::string_view text);
/// "93.8 MiB", for messages.
std::string format_bytes(size_t bytes);

}  // namespace mlxcel
