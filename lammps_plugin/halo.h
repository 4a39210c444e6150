// SPDX-License-Identifier: GPL-2.0-or-later
// Moves per-node rows between ranks with LAMMPS's own communication of ghost atoms. The pair style passes LAMMPS's
// pack and unpack calls on to it. Several ghosts may be images of one remote atom: they share one node.
#pragma once

#include "python_bridge.h"

#include <functional>
#include <vector>

namespace flashcart
{

class Halo final : public FeatureExchange
{
public:
  // LAMMPS sizes its buffers for this many doubles per atom and does not check: never more at once.
  static constexpr int CHUNK = 96;

  // Both take the number of doubles per atom and end in comm->forward_comm and comm->reverse_comm of the pair style.
  Halo(std::function<void(int)> forward_comm, std::function<void(int)> reverse_comm);

  // Collective. Fills node_of_atom, atom_of_node and n_owned; has_element [n_owned_atoms + n_ghosts].
  void map_nodes(int rank, int n_owned_atoms, const std::vector<bool> &has_element, NeighborPairs &pairs);

  void forward(const double *owned, int width, double *nodes) override;
  void reverse(const double *nodes, int width, double *owned) override;

  int pack(int n, const int *atoms, double *buffer) const;
  void unpack(int n, int first, const double *buffer);
  int pack_reverse(int n, int first, double *buffer) const;
  void unpack_reverse(int n, const int *atoms, const double *buffer);

private:
  std::function<void(int)> forward_comm, reverse_comm;
  std::vector<int> atom_of_node; // of the last map_nodes
  int n_owned = 0, n_atoms = 0;
  std::vector<double> rows; // [n_atoms, row_width], what is on its way
  int row_width = 0;
};

} // namespace flashcart
