// SPDX-License-Identifier: GPL-2.0-or-later
// Keeps LAMMPS's number of OpenMP threads over a call of torch, which shares the runtime and changes the number: with
// another one, LAMMPS's /omp styles silently skip work.
#pragma once

#include <dlfcn.h>

namespace flashcart
{

class OpenMPThreads
{
public:
  // n_threads: for the time of this object; 0 leaves the number as it is.
  explicit OpenMPThreads(int n_threads = 0)
  {
    // The process's runtime, whichever it is; this library links none.
    const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (!get || !set) return;
    saved = get();
    if (n_threads > 0 && n_threads != saved) set(n_threads);
  }
  ~OpenMPThreads()
  {
    if (saved > 0) set(saved);
  }
  OpenMPThreads(const OpenMPThreads &) = delete;
  OpenMPThreads &operator=(const OpenMPThreads &) = delete;

private:
  void (*set)(int) = nullptr;
  int saved = 0;
};

} // namespace flashcart
