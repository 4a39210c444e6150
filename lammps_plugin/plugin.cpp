// SPDX-License-Identifier: GPL-2.0-or-later
// The loader that LAMMPS opens: checks that it was built for this LAMMPS and registers `pair_style flashcart`. It holds
// nothing of Python, so that every start of LAMMPS stays cheap; the first `pair_style flashcart` opens the rest.

#include "shared_objects.h"

#include <comm.h>
#include <error.h>
#include <lammps.h>
#include <library.h>
#include <utils.h>

#include <string>

using LAMMPS_NS::LAMMPS;

namespace
{

// LAMMPS's documented plugin interface; its header is not part of an installation.
struct PluginRecord {
  const char *version;
  const char *style;
  const char *name;
  const char *info;
  const char *author;
  void *(*create)(void *);
  void *handle;
};
using RegisterFunction = void (*)(PluginRecord *, void *);

// Empty: this LAMMPS is the one that the plugin was compiled for.
std::string mismatch(void *lmp)
{
  const int version = lammps_version(lmp);
  if (version != FLASHCART_LAMMPS_VERSION)
    return "it was built for LAMMPS version " + std::to_string(FLASHCART_LAMMPS_VERSION) + " and this is version " +
           std::to_string(version);
  const int id_size = lammps_extract_setting(lmp, "tagint");
  if (id_size != static_cast<int>(sizeof(LAMMPS_NS::tagint)))
    return "it was built for " + std::to_string(8 * sizeof(LAMMPS_NS::tagint)) + "-bit atom ids and this LAMMPS has " +
           std::to_string(8 * id_size) + "-bit ones";
  return {};
}

void *create_pair(void *handle)
{
  auto *lmp = static_cast<LAMMPS *>(handle);
  std::string problem;
  const flashcart::CreatePair create = flashcart::open_core(problem);
  if (!create) lmp->error->all(FLERR, "pair_style flashcart: {}", problem);
  return create(lmp);
}

} // namespace

extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void *handle, void *library,
                                                                         void *register_function)
{
  const std::string problem = mismatch(handle);
  if (!problem.empty()) {
    // Only what an unknown LAMMPS certainly has: standard output, on one rank.
    if (lammps_extract_setting(handle, "world_rank") == 0) {
      std::printf("ERROR: the FlashCart plugin is not loaded: %s. Build FlashCart against this LAMMPS.\n",
                  problem.c_str());
      std::fflush(stdout);
    }
    return;
  }
  auto *lmp = static_cast<LAMMPS *>(handle);
  PluginRecord record{};
  record.version = lmp->version;
  record.style = "pair";
  record.name = "flashcart";
  record.info = "FlashCart interatomic potential " FLASHCART_VERSION;
  record.author = "The FlashCart developers";
  record.create = &create_pair;
  record.handle = library;
  reinterpret_cast<RegisterFunction>(register_function)(&record, lmp);
}
