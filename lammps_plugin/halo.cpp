// SPDX-License-Identifier: GPL-2.0-or-later
#include "halo.h"

#include <algorithm>
#include <map>
#include <utility>

namespace flashcart
{

Halo::Halo(std::function<void(int)> forward_comm, std::function<void(int)> reverse_comm)
    : forward_comm(std::move(forward_comm)), reverse_comm(std::move(reverse_comm))
{
}

void Halo::map_nodes(int rank, int n_owned_atoms, const std::vector<bool> &has_element, NeighborPairs &pairs)
{
  // Each ghost learns its owner's rank and index there.
  n_atoms = static_cast<int>(has_element.size());
  row_width = 2;
  rows.assign(static_cast<std::size_t>(n_atoms) * 2, -1.0);
  for (int atom = 0; atom < n_owned_atoms; atom++) {
    rows[2 * atom] = rank;
    rows[2 * atom + 1] = atom;
  }
  forward_comm(row_width);

  pairs.node_of_atom.assign(n_atoms, -1);
  atom_of_node.clear();
  for (int atom = 0; atom < n_owned_atoms; atom++) {
    if (!has_element[atom]) continue;
    pairs.node_of_atom[atom] = static_cast<int>(atom_of_node.size());
    atom_of_node.push_back(atom);
  }
  n_owned = static_cast<int>(atom_of_node.size());
  std::map<std::pair<int, int>, int> remote; // (rank, index there) -> node
  for (int ghost = n_owned_atoms; ghost < n_atoms; ghost++) {
    if (!has_element[ghost]) continue;
    const std::pair<int, int> owner(static_cast<int>(rows[2 * ghost]), static_cast<int>(rows[2 * ghost + 1]));
    if (owner.first == rank) {
      pairs.node_of_atom[ghost] = pairs.node_of_atom[owner.second];
      continue;
    }
    const auto [entry, is_new] = remote.emplace(owner, static_cast<int>(atom_of_node.size()));
    if (is_new) atom_of_node.push_back(ghost);
    pairs.node_of_atom[ghost] = entry->second;
  }
  pairs.atom_of_node = atom_of_node;
  pairs.n_owned = n_owned;
}

void Halo::forward(const double *owned, int width, double *nodes)
{
  const int n_nodes = static_cast<int>(atom_of_node.size());
  for (int first = 0; first < width; first += CHUNK) {
    row_width = std::min(CHUNK, width - first);
    rows.assign(static_cast<std::size_t>(n_atoms) * row_width, 0.0);
    for (int node = 0; node < n_owned; node++)
      std::copy_n(owned + static_cast<std::size_t>(node) * width + first, row_width,
                  rows.data() + static_cast<std::size_t>(atom_of_node[node]) * row_width);
    forward_comm(row_width);
    for (int node = 0; node < n_nodes; node++)
      std::copy_n(rows.data() + static_cast<std::size_t>(atom_of_node[node]) * row_width, row_width,
                  nodes + static_cast<std::size_t>(node) * width + first);
  }
}

void Halo::reverse(const double *nodes, int width, double *owned)
{
  const int n_nodes = static_cast<int>(atom_of_node.size());
  for (int first = 0; first < width; first += CHUNK) {
    row_width = std::min(CHUNK, width - first);
    // Other images of a node's atom carry zero: a row travels home once.
    rows.assign(static_cast<std::size_t>(n_atoms) * row_width, 0.0);
    for (int node = 0; node < n_nodes; node++)
      std::copy_n(nodes + static_cast<std::size_t>(node) * width + first, row_width,
                  rows.data() + static_cast<std::size_t>(atom_of_node[node]) * row_width);
    reverse_comm(row_width);
    for (int node = 0; node < n_owned; node++)
      std::copy_n(rows.data() + static_cast<std::size_t>(atom_of_node[node]) * row_width, row_width,
                  owned + static_cast<std::size_t>(node) * width + first);
  }
}

int Halo::pack(int n, const int *atoms, double *buffer) const
{
  for (int k = 0; k < n; k++)
    buffer = std::copy_n(rows.data() + static_cast<std::size_t>(atoms[k]) * row_width, row_width, buffer);
  return n * row_width;
}

void Halo::unpack(int n, int first, const double *buffer)
{
  std::copy_n(buffer, static_cast<std::size_t>(n) * row_width,
              rows.data() + static_cast<std::size_t>(first) * row_width);
}

int Halo::pack_reverse(int n, int first, double *buffer) const
{
  std::copy_n(rows.data() + static_cast<std::size_t>(first) * row_width, static_cast<std::size_t>(n) * row_width,
              buffer);
  return n * row_width;
}

void Halo::unpack_reverse(int n, const int *atoms, const double *buffer)
{
  for (int k = 0; k < n; k++) {
    double *row = rows.data() + static_cast<std::size_t>(atoms[k]) * row_width;
    for (int column = 0; column < row_width; column++) row[column] += buffer[k * row_width + column];
  }
}

} // namespace flashcart
