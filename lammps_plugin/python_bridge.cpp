// SPDX-License-Identifier: GPL-2.0-or-later
#include "python_bridge.h"

#include "openmp_threads.h"
#include "python_host.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>

namespace py = pybind11;

namespace flashcart
{
namespace
{

using Rows = py::array_t<double, py::array::c_style | py::array::forcecast>;

// A view over memory of LAMMPS or of this call; Python must not keep it.
template <typename T> py::array_t<T> view(const T *values, std::vector<py::ssize_t> shape)
{
  return py::array_t<T>(std::move(shape), values, py::none()); // a base object: no copy
}

template <typename T> py::array_t<T> view(const std::vector<T> &values)
{
  static const T nothing{};
  return view(values.empty() ? &nothing : values.data(), {static_cast<py::ssize_t>(values.size())});
}

void copy_rows(const py::handle &object, std::vector<double> &target, py::ssize_t expected, const char *name)
{
  const Rows rows = py::cast<Rows>(object);
  if (rows.size() != expected)
    throw std::runtime_error(std::string(name) + " from Python has " + std::to_string(rows.size()) +
                             " values, expected " + std::to_string(expected));
  target.assign(rows.data(), rows.data() + rows.size());
}

// Runs `body` with the GIL, and turns a Python exception into a C++ one before the GIL is left.
template <typename Body> void with_python(Body &&body)
{
  const py::gil_scoped_acquire gil;
  try {
    body();
  } catch (py::error_already_set &error) {
    const py::object describe = py::module_::import("flashcart.calculators.lammps").attr("describe_error");
    const py::object trace = error.trace() ? error.trace() : py::none();
    const std::string message = describe(error.value(), trace).template cast<std::string>();
    throw std::runtime_error(message);
  }
}

// The two functions that Python gets: numpy rows in, numpy rows out, without the GIL while ranks wait for each other.
py::tuple exchange_functions(FeatureExchange &exchange)
{
  const auto forward = [&exchange](const Rows &owned, Rows &nodes) {
    const int width = static_cast<int>(owned.shape(1));
    const double *source = owned.data();
    double *target = nodes.mutable_data();
    const py::gil_scoped_release release;
    exchange.forward(source, width, target);
  };
  const auto reverse = [&exchange](const Rows &nodes, Rows &owned) {
    const int width = static_cast<int>(nodes.shape(1));
    const double *source = nodes.data();
    double *target = owned.mutable_data();
    const py::gil_scoped_release release;
    exchange.reverse(source, width, target);
  };
  return py::make_tuple(py::cpp_function(forward, py::arg("owned").noconvert(), py::arg("nodes").noconvert()),
                        py::cpp_function(reverse, py::arg("nodes").noconvert(), py::arg("owned").noconvert()));
}

py::object load(const ModelRequest &request)
{
  py::dict arguments;
  arguments["path"] = request.path;
  arguments["elements"] = request.elements;
  arguments["device"] = request.device;
  arguments["dtype"] = request.dtype;
  arguments["tf32"] = request.tf32;
  arguments["deterministic"] = request.deterministic;
  arguments["rank"] = request.rank;
  arguments["n_ranks"] = request.n_ranks;
  arguments["local_rank"] = request.local_rank;
  arguments["n_local_ranks"] = request.n_local_ranks;
  arguments["python"] = python_choice();
  return py::module_::import("flashcart.calculators.lammps").attr("open_potential")(arguments);
}

} // namespace

struct PythonBridge::Implementation {
  py::object potential;
  ModelFacts facts;
};

PythonBridge::PythonBridge(const ModelRequest &request) : implementation(new Implementation)
{
  const OpenMPThreads threads;
  start_python();
  with_python([&] {
    py::object potential = load(request);
    ModelFacts &facts = implementation->facts;
    facts.cutoff = potential.attr("cutoff").cast<double>();
    facts.n_threads = potential.attr("n_threads").cast<int>();
    facts.device = py::str(potential.attr("device")).cast<std::string>();
    facts.description = potential.attr("describe")().cast<std::string>();
    implementation->potential = std::move(potential);
  });
}

PythonBridge::~PythonBridge()
{
  const OpenMPThreads threads;
  // Where the host's Python is already gone, the objects are gone with it: forget the reference.
  if (!Py_IsInitialized()) {
    implementation->potential.release();
    return;
  }
  const py::gil_scoped_acquire gil;
  implementation->potential = py::object();
}

const ModelFacts &PythonBridge::facts() const { return implementation->facts; }

void PythonBridge::set_neighbors(const NeighborPairs &pairs)
{
  const OpenMPThreads threads(implementation->facts.n_threads);
  with_python([&] {
    implementation->potential.attr("set_neighbors")(view(pairs.receivers), view(pairs.senders),
                                                    view(pairs.node_of_atom), view(pairs.atom_of_node), pairs.n_owned);
  });
}

void PythonBridge::evaluate(const Step &step, FeatureExchange *exchange, Result &result)
{
  const OpenMPThreads threads(implementation->facts.n_threads);
  with_python([&] {
    const py::ssize_t n_atoms = step.n_atoms;
    const py::object functions = exchange ? py::object(exchange_functions(*exchange)) : py::object(py::none());
    const py::object answer =
        implementation->potential.attr("evaluate")(view(step.positions, {n_atoms, 3}), view(step.types, {n_atoms}),
                                                   functions, step.angstrom_per_length, step.atom_virials);
    result.energy = answer.attr("energy").cast<double>();
    const Rows virial = answer.attr("virial").cast<Rows>();
    if (virial.size() != 6) throw std::runtime_error("virial from Python has not 6 values");
    std::copy(virial.data(), virial.data() + 6, result.virial);
    copy_rows(answer.attr("forces"), result.forces, 3 * n_atoms, "forces");
    result.site_energies.clear();
    result.atom_virials.clear();
    if (step.site_energies) {
      const Rows energies = answer.attr("site_energies").cast<Rows>();
      result.site_energies.assign(energies.data(), energies.data() + energies.size());
    }
    if (step.atom_virials) copy_rows(answer.attr("atom_virials"), result.atom_virials, 6 * n_atoms, "atom_virials");
  });
}

} // namespace flashcart
