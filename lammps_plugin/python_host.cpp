// SPDX-License-Identifier: GPL-2.0-or-later
#include "python_host.h"

#include <Python.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace flashcart
{
namespace
{

struct Choice {
  std::string program;
  std::string reason;
};

// <prefix>/bin/python where this library lies in <prefix>/lib/pythonX.Y/...; empty elsewhere.
std::string python_of_own_environment()
{
  Dl_info where{};
  if (!dladdr(reinterpret_cast<void *>(&start_python), &where) || !where.dli_fname) return {};
  const std::string path = where.dli_fname;
  const auto end = path.rfind("/lib/python");
  if (end == std::string::npos) return {};
  const std::string program = path.substr(0, end) + "/bin/python3";
  return access(program.c_str(), X_OK) == 0 ? program : std::string();
}

// VIRTUAL_ENV is left alone: a stale one leads to a Python without torch.
Choice choose()
{
  if (const char *named = std::getenv("FLASHCART_PYTHON"); named && *named) {
    if (access(named, X_OK) != 0)
      throw std::runtime_error(std::string("FLASHCART_PYTHON=") + named + ": no such program");
    return {named, "FLASHCART_PYTHON"};
  }
  if (std::string program = python_of_own_environment(); !program.empty()) return {program, "the plugin's environment"};
  return {FLASHCART_PYTHON_EXECUTABLE, "the one of the build"};
}

std::string &choice_text()
{
  static std::string text = "the host's";
  return text;
}

} // namespace

void start_python()
{
  if (Py_IsInitialized()) return;
  const Choice choice = choose();
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.parse_argv = 0;
  config.install_signal_handlers = 0; // Ctrl-C stays LAMMPS's
  config.buffered_stdio = 0;          // never finalised, so nothing would flush
  PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, choice.program.c_str());
  // The thread keeps the GIL: releasing it here breaks LAMMPS's own PYTHON package at its end.
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status))
    throw std::runtime_error("Python (" + choice.program +
                             ") cannot be started: " + (status.err_msg ? status.err_msg : "unknown reason"));
  choice_text() = choice.program + " (" + choice.reason + ")";
}

std::string python_choice() { return choice_text(); }

} // namespace flashcart
