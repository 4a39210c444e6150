// SPDX-License-Identifier: GPL-2.0-or-later
// pair_style flashcart: settings, elements, neighbour lists and communication of LAMMPS; the model is behind
// PythonBridge.
#pragma once

#include "halo.h"
#include "python_bridge.h"

#include <pair.h>

#include <memory>
#include <string>
#include <vector>

namespace LAMMPS_NS
{

class PairFlashcart : public Pair
{
public:
  explicit PairFlashcart(class LAMMPS *lmp);
  ~PairFlashcart() override;
  PairFlashcart(const PairFlashcart &) = delete;
  PairFlashcart &operator=(const PairFlashcart &) = delete;

  void settings(int narg, char **arg) override;
  void coeff(int narg, char **arg) override;
  void init_style() override;
  double init_one(int i, int j) override;
  void compute(int eflag, int vflag) override;

  int pack_forward_comm(int n, int *atoms, double *buffer, int pbc_flag, int *pbc) override;
  void unpack_forward_comm(int n, int first, double *buffer) override;
  int pack_reverse_comm(int n, int first, double *buffer) override;
  void unpack_reverse_comm(int n, int *atoms, double *buffer) override;
  double memory_usage() override;

private:
  flashcart::ModelRequest request;
  std::unique_ptr<flashcart::PythonBridge> bridge;
  flashcart::Halo halo;
  flashcart::NeighborPairs pairs;
  flashcart::Result result;
  std::vector<bool> acts_on_atom; // the types have an element; of the last flattening
  int n_owned_atoms = -1, n_all_atoms = -1;
  bool flatten_next = true;
  double length_unit = 1.0, energy_unit = 1.0; // one Å and one eV in LAMMPS's units

  void read_elements(int n_types, char **names);
  void load_model();
  void log_model();
  void check_host();
  void choose_units();
  void check_special_bonds();

  std::vector<bool> find_atoms_with_element() const;
  void update_pairs();
  void flatten();
  void tally();
};

} // namespace LAMMPS_NS
