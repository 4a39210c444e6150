// SPDX-License-Identifier: GPL-2.0-or-later
#include "pair_flashcart.h"

#include <atom.h>
#include <comm.h>
#include <error.h>
#include <exceptions.h>
#include <force.h>
#include <memory.h>
#include <modify.h>
#include <mpi.h>
#include <neigh_list.h>
#include <neighbor.h>
#include <update.h>
#include <utils.h>

#include <cstring>
#include <exception>

using namespace LAMMPS_NS;

namespace
{

constexpr double EV_PER_KELVIN = 8.617343e-5; // LAMMPS's Boltzmann constant in metal units

std::string on_or_off(Error *error, const char *keyword, const std::string &value)
{
  if (value != "on" && value != "off")
    error->all(FLERR, "pair_style flashcart {} {}: expected on or off", keyword, value);
  return value;
}

} // namespace

PairFlashcart::PairFlashcart(LAMMPS *lmp)
    : Pair(lmp), halo([this](int width) { comm->forward_comm(this, width); },
                      [this](int width) { comm->reverse_comm(this, width); })
{
  single_enable = 0;
  restartinfo = 0; // after read_restart, pair_style and pair_coeff are repeated
  one_coeff = 1;
  manybody_flag = 1;
  writedata = 0;
  no_virial_fdotr_compute = 1; // the virial comes from edges
  centroidstressflag = CENTROID_NOTAVAIL;
  // LAMMPS sizes its buffers by these, and hybrid styles read them early.
  comm_forward = comm_reverse = comm_reverse_off = flashcart::Halo::CHUNK;
}

PairFlashcart::~PairFlashcart()
{
  if (!allocated) return;
  memory->destroy(setflag);
  memory->destroy(cutsq);
}

void PairFlashcart::settings(int narg, char **arg)
{
  request = flashcart::ModelRequest();
  request.device = "auto";
  request.dtype = "trained";
  request.tf32 = request.deterministic = "model";
  for (int k = 0; k < narg; k += 2) {
    const std::string keyword = arg[k];
    if (keyword == "committee" || keyword == "deviation" || keyword == "relative")
      error->all(FLERR, "pair_style flashcart {}: committees and model deviation are not supported yet", keyword);
    if (keyword != "device" && keyword != "dtype" && keyword != "tf32" && keyword != "deterministic")
      error->all(FLERR, "pair_style flashcart {}: unknown keyword; known are device, dtype, tf32 and deterministic",
                 keyword);
    if (k + 1 == narg) error->all(FLERR, "pair_style flashcart {}: the value is missing", keyword);
    const std::string value = arg[k + 1];
    if (keyword == "device")
      request.device = value;
    else if (keyword == "tf32")
      request.tf32 = on_or_off(error, "tf32", value);
    else if (keyword == "deterministic")
      request.deterministic = on_or_off(error, "deterministic", value);
    else if (value == "trained" || value == "float32" || value == "float64")
      request.dtype = value;
    else
      error->all(FLERR, "pair_style flashcart dtype {}: expected trained, float32 or float64", value);
  }
}

void PairFlashcart::coeff(int narg, char **arg)
{
  const int n_types = atom->ntypes;
  if (narg < 3 || std::strcmp(arg[0], "*") != 0 || std::strcmp(arg[1], "*") != 0)
    error->all(FLERR, "pair_coeff of flashcart: expected '* *', a model file and one element per atom type");
  request.path = arg[2];
  read_elements(narg - 3, arg + 3);
  load_model();

  if (!allocated) {
    memory->create(setflag, n_types + 1, n_types + 1, "pair:setflag");
    memory->create(cutsq, n_types + 1, n_types + 1, "pair:cutsq");
    allocated = 1;
  }
  // Alone, it answers for every pair, with nothing for NULL; within hybrid styles another one may.
  const bool alone = force->pair == this;
  for (int i = 1; i <= n_types; i++)
    for (int j = 1; j <= n_types; j++)
      setflag[i][j] = alone || (request.elements[i - 1] != "NULL" && request.elements[j - 1] != "NULL");
}

void PairFlashcart::read_elements(int n_names, char **names)
{
  if (n_names != atom->ntypes)
    error->all(FLERR, "pair_coeff of flashcart: {} elements for {} atom types; give one element, or NULL, per type",
               n_names, atom->ntypes);
  request.elements.assign(names, names + n_names);
}

void PairFlashcart::load_model()
{
  MPI_Comm host;
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, comm->me, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &request.local_rank);
  MPI_Comm_size(host, &request.n_local_ranks);
  MPI_Comm_free(&host);
  request.rank = comm->me;
  request.n_ranks = comm->nprocs;

  bridge.reset();
  std::string problem;
  try {
    bridge = std::make_unique<flashcart::PythonBridge>(request);
  } catch (const std::exception &reason) {
    problem = reason.what();
  }
  // One message where all ranks fail alike; a rank that fails alone must not leave the others waiting.
  int here = problem.empty() ? 0 : 1, failed = 0;
  MPI_Allreduce(&here, &failed, 1, MPI_INT, MPI_SUM, world);
  if (failed == comm->nprocs) error->all(FLERR, "pair_style flashcart: {}", problem);
  if (here) error->one(FLERR, "pair_style flashcart on rank {}: {}", comm->me, problem);
  log_model();
}

void PairFlashcart::log_model()
{
  constexpr int WIDTH = 32;
  std::vector<char> devices(static_cast<std::size_t>(WIDTH) * comm->nprocs);
  char own[WIDTH] = {};
  std::strncpy(own, bridge->facts().device.c_str(), WIDTH - 1);
  MPI_Gather(own, WIDTH, MPI_CHAR, devices.data(), WIDTH, MPI_CHAR, 0, world);
  if (comm->me != 0) return;
  std::string text = bridge->facts().description;
  bool alike = true;
  for (int rank = 1; rank < comm->nprocs; rank++) alike = alike && !std::strcmp(own, devices.data() + rank * WIDTH);
  if (!alike) {
    text += "  devices by rank:";
    for (int rank = 0; rank < comm->nprocs; rank++) text += std::string(" ") + (devices.data() + rank * WIDTH);
    text += "\n";
  }
  utils::logmesg(lmp, text);
}

void PairFlashcart::init_style()
{
  if (!bridge) error->all(FLERR, "pair_style flashcart: no model yet; write pair_coeff * * best.safetensors ELEMENTS");
  check_host();
  choose_units();
  check_special_bonds();
  neighbor->add_request(this, NeighConst::REQ_FULL);
  flatten_next = true;
}

void PairFlashcart::check_host()
{
  if (!force->newton_pair)
    error->all(FLERR,
               "pair_style flashcart sends forces back from ghost atoms: write 'newton on' before the box is made");
  if (utils::strmatch(update->integrate_style, "^respa"))
    error->all(FLERR, "pair_style flashcart has one time scale: write 'run_style verlet' in place of respa");
  if (lmp->kokkos)
    error->all(FLERR, "pair_style flashcart does not run with Kokkos: leave out -k on and -sf kk on the command line");
  if (!modify->get_compute_by_style("^heat/flux").empty())
    error->all(FLERR, "pair_style flashcart: compute heat/flux needs 9-component stresses of a message-passing energy, "
                      "which are not there yet; leave the compute out");
  if (neighbor->includegroup)
    error->all(FLERR, "pair_style flashcart needs the neighbours of all atoms: leave out 'neigh_modify include'");
  if (neighbor->exclude && comm->me == 0)
    error->warning(FLERR,
                   "pair_style flashcart: 'neigh_modify exclude' removes neighbours that the model was trained with");
}

void PairFlashcart::choose_units()
{
  const std::string units = update->unit_style;
  if (units != "metal" && units != "real" && units != "electron" && units != "si")
    error->all(FLERR,
               "pair_style flashcart: the model is in eV and Angstrom, which units {} cannot express; write "
               "'units metal' (real, electron and si are converted)",
               units);
  length_unit = force->angstrom;
  energy_unit = force->boltz / EV_PER_KELVIN;
}

void PairFlashcart::check_special_bonds()
{
  if (atom->molecular == Atom::ATOMIC || atom->nbonds == 0) return;
  for (int k = 1; k <= 3; k++)
    if (force->special_lj[k] == 0.0 && force->special_coul[k] == 0.0)
      error->all(FLERR, "pair_style flashcart: special_bonds removes bonded neighbours, which the model needs; write "
                        "'special_bonds lj/coul 1 1 1'");
}

double PairFlashcart::init_one(int, int) { return bridge->facts().cutoff * length_unit; }

std::vector<bool> PairFlashcart::find_atoms_with_element() const
{
  const int n_atoms = atom->nlocal + atom->nghost;
  std::vector<bool> found(n_atoms);
  for (int k = 0; k < n_atoms; k++) found[k] = request.elements[atom->type[k] - 1] != "NULL";
  return found;
}

void PairFlashcart::update_pairs()
{
  // The same decision on every rank, as the owners of ghosts are asked for: any change of types to or from NULL counts.
  std::vector<bool> acts = find_atoms_with_element();
  bool rebuild = neighbor->ago == 0 || flatten_next;
  const bool counts_changed = atom->nlocal != n_owned_atoms || atom->nlocal + atom->nghost != n_all_atoms;
  if (!rebuild) {
    int here = counts_changed || acts != acts_on_atom, anywhere = 0;
    MPI_Allreduce(&here, &anywhere, 1, MPI_INT, MPI_MAX, world);
    rebuild = anywhere;
  }
  if (!rebuild) return;
  n_owned_atoms = atom->nlocal;
  n_all_atoms = atom->nlocal + atom->nghost;
  halo.map_nodes(comm->me, n_owned_atoms, acts, pairs);
  acts_on_atom = std::move(acts);
  flatten();
  bridge->set_neighbors(pairs);
  flatten_next = false;
}

void PairFlashcart::flatten()
{
  pairs.receivers.clear();
  pairs.senders.clear();
  for (int k = 0; k < list->inum; k++) {
    const int i = list->ilist[k];
    if (pairs.node_of_atom[i] < 0) continue;
    const int *neighbors = list->firstneigh[i];
    for (int n = 0; n < list->numneigh[i]; n++) {
      const int j = neighbors[n] & NEIGHMASK;
      if (pairs.node_of_atom[j] < 0) continue;
      pairs.receivers.push_back(i);
      pairs.senders.push_back(j);
    }
  }
}

void PairFlashcart::compute(int eflag, int vflag)
{
  ev_init(eflag, vflag);
  try {
    update_pairs();
    flashcart::Step step{};
    step.n_atoms = n_all_atoms;
    step.positions = n_all_atoms ? atom->x[0] : nullptr;
    step.types = atom->type;
    step.angstrom_per_length = 1.0 / length_unit;
    step.site_energies = eflag_atom;
    step.atom_virials = vflag_atom;
    bridge->evaluate(step, comm->nprocs > 1 ? &halo : nullptr, result);
  } catch (const LAMMPSException &) {
    throw;
  } catch (const std::exception &reason) {
    error->one(FLERR, "pair_style flashcart on rank {}: {}", comm->me, reason.what());
  }
  tally();
}

void PairFlashcart::tally()
{
  const double force_unit = energy_unit / length_unit;
  for (int k = 0; k < n_all_atoms; k++)
    for (int axis = 0; axis < 3; axis++) atom->f[k][axis] += force_unit * result.forces[3 * k + axis];
  if (eflag_global) eng_vdwl += energy_unit * result.energy;
  if (vflag_global)
    for (int k = 0; k < 6; k++) virial[k] += energy_unit * result.virial[k];
  if (eflag_atom)
    for (int node = 0; node < pairs.n_owned; node++)
      eatom[pairs.atom_of_node[node]] += energy_unit * result.site_energies[node];
  if (vflag_atom)
    for (int k = 0; k < n_all_atoms; k++)
      for (int component = 0; component < 6; component++)
        vatom[k][component] += energy_unit * result.atom_virials[6 * k + component];
}

int PairFlashcart::pack_forward_comm(int n, int *atoms, double *buffer, int, int *)
{
  return halo.pack(n, atoms, buffer);
}

void PairFlashcart::unpack_forward_comm(int n, int first, double *buffer) { halo.unpack(n, first, buffer); }

int PairFlashcart::pack_reverse_comm(int n, int first, double *buffer) { return halo.pack_reverse(n, first, buffer); }

void PairFlashcart::unpack_reverse_comm(int n, int *atoms, double *buffer) { halo.unpack_reverse(n, atoms, buffer); }

double PairFlashcart::memory_usage()
{
  return Pair::memory_usage() + sizeof(int) * static_cast<double>(pairs.receivers.size() + pairs.senders.size());
}
