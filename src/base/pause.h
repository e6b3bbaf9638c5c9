// How a thread waits for another one that should be there any moment.
#pragma once

#include <thread>

namespace mlxcel {

/// 40 to 140 cycles, in which the core's other thread has it for itself.
inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// For a wait that has lasted: lets others have the core, then looks away for about a microsecond. A thread
/// that only yields is in the kernel all the time and slows down its neighbour on a shared core.
inline void give_way() {
  std::this_thread::yield();
  for (int i = 0; i < 20; ++i) pause_cpu();
}

}  // namespace mlxcel
