// SPDX-License-Identifier: GPL-2.0-or-later
// Opens libpython (where the process has none) and `_core.so` beside this library. No Python needed to compile it.
#pragma once

#include <string>

namespace LAMMPS_NS
{
class LAMMPS;
class Pair;
} // namespace LAMMPS_NS

namespace flashcart
{

using CreatePair = LAMMPS_NS::Pair *(*)(LAMMPS_NS::LAMMPS *);

// Returns the factory of the pair style, or null with the reason in `problem`. Opens once per process.
CreatePair open_core(std::string &problem);

} // namespace flashcart
