// SPDX-License-Identifier: GPL-2.0-or-later
// The one name that `_core.so` exports.

#include "pair_flashcart.h"

extern "C" __attribute__((visibility("default"))) LAMMPS_NS::Pair *flashcart_create_pair(LAMMPS_NS::LAMMPS *lmp)
{
  return new LAMMPS_NS::PairFlashcart(lmp);
}
