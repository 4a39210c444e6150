// SPDX-License-Identifier: GPL-2.0-or-later
#include "shared_objects.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace flashcart
{
namespace
{

std::string own_folder()
{
  Dl_info where{};
  if (!dladdr(reinterpret_cast<void *>(&open_core), &where) || !where.dli_fname) return ".";
  const std::string path = where.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Where libpython may lie, most explicit first.
std::vector<std::string> library_candidates()
{
  if (const char *chosen = std::getenv("FLASHCART_LIBPYTHON"); chosen && *chosen) return {chosen};
  std::vector<std::string> candidates;
  if (const char *python = std::getenv("FLASHCART_PYTHON"); python && *python) {
    const std::string path = python;
    const auto slash = path.rfind('/');
    if (slash != std::string::npos) candidates.push_back(path.substr(0, slash) + "/../lib/" FLASHCART_PYTHON_SONAME);
  }
  if (std::strlen(FLASHCART_PYTHON_LIBRARY) > 0) candidates.emplace_back(FLASHCART_PYTHON_LIBRARY);
  candidates.emplace_back(FLASHCART_PYTHON_SONAME);
  return candidates;
}

bool open_libpython(std::string &problem)
{
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized")) return true; // LAMMPS runs inside Python
  for (const std::string &candidate : library_candidates()) {
    // Global: the extension modules of Python look their symbols up there.
    if (dlopen(candidate.c_str(), RTLD_NOW | RTLD_GLOBAL)) return true;
    problem += std::string(problem.empty() ? "" : "; ") + dlerror();
  }
  problem = "no shared Python library could be opened (" + problem +
            "). Name it in FLASHCART_LIBPYTHON, or run the deck inside Python: flashcart-lammps run -in deck";
  return false;
}

bool same_python(std::string &problem)
{
  using GetVersion = const char *(*)();
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  const std::string version = get_version ? get_version() : "unknown";
  const std::string built = FLASHCART_PYTHON_VERSION ".";
  if (version.compare(0, built.size(), built) == 0) return true;
  problem = "the plugin was built for Python " FLASHCART_PYTHON_VERSION " and this process runs Python " +
            version.substr(0, version.find(' ')) + ". Install FlashCart into that Python, or use the other one";
  return false;
}

} // namespace

CreatePair open_core(std::string &problem)
{
  static CreatePair create = nullptr;
  if (create) return create;
  if (!open_libpython(problem) || !same_python(problem)) return nullptr;
  const std::string path = own_folder() + "/_core.so";
  void *core = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void *factory = core ? dlsym(core, "flashcart_create_pair") : nullptr;
  if (!factory) {
    problem = "cannot open the rest of the plugin: " + std::string(dlerror());
    return nullptr;
  }
  create = reinterpret_cast<CreatePair>(factory);
  return create;
}

} // namespace flashcart
