// SPDX-License-Identifier: GPL-2.0-or-later
// What the pair style asks of Python: load a model, take neighbour lists, evaluate. Knows nothing of LAMMPS; the Python
// side is flashcart.calculators.lammps. Every member may throw std::runtime_error, the message holding the traceback.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flashcart
{

// Moves rows of node features between the ranks. Both calls are collective.
class FeatureExchange
{
public:
  virtual ~FeatureExchange() = default;
  // owned [n_owned, width] -> nodes [n_nodes, width]: the rows of the owners.
  virtual void forward(const double *owned, int width, double *nodes) = 0;
  // nodes [n_nodes, width] -> owned [n_owned, width]: the sum over all copies of a row, on every rank.
  virtual void reverse(const double *nodes, int width, double *owned) = 0;
};

struct ModelRequest {
  std::string path;
  std::vector<std::string> elements; // one per atom type, "NULL" where the model does not act
  std::string device, dtype;
  std::string tf32, deterministic; // "model", "on" or "off"
  int rank = 0, n_ranks = 1;
  int local_rank = 0, n_local_ranks = 1; // on this host
};

struct ModelFacts {
  double cutoff;           // Å
  int n_threads;           // of torch
  std::string device;      // of this rank
  std::string description; // several lines, for the log
};

// Nodes are the atoms with an element: the owned ones first, then the remote ones. An atom index counts owned atoms and
// ghosts. Pairs [n_pairs] hold atom indices.
struct NeighborPairs {
  std::vector<int> receivers, senders;
  std::vector<int> node_of_atom; // -1: no element
  std::vector<int> atom_of_node; // the atom that stands for the node
  int n_owned = 0;               // nodes
};

struct Step {
  const double *positions; // [n_atoms, 3]
  const int *types;        // [n_atoms], from 1
  int n_atoms;
  double angstrom_per_length;
  bool site_energies, atom_virials; // wanted
};

// eV, eV/Å; virials in the order xx yy zz xy xz yz with LAMMPS's sign.
struct Result {
  double energy = 0.0;
  double virial[6] = {};
  std::vector<double> forces;        // [n_atoms, 3]
  std::vector<double> site_energies; // [n_owned] or empty
  std::vector<double> atom_virials;  // [n_atoms, 6] or empty
};

class PythonBridge
{
public:
  explicit PythonBridge(const ModelRequest &request);
  ~PythonBridge();
  PythonBridge(const PythonBridge &) = delete;
  PythonBridge &operator=(const PythonBridge &) = delete;

  const ModelFacts &facts() const;
  void set_neighbors(const NeighborPairs &pairs);
  // exchange: null where all nodes are owned by this rank.
  void evaluate(const Step &step, FeatureExchange *exchange, Result &result);

private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

} // namespace flashcart
