// SPDX-License-Identifier: GPL-2.0-or-later
// Makes sure that this process runs Python. It is started at most once and never finalised.
#pragma once

#include <string>

namespace flashcart
{

// Throws std::runtime_error with the reason where Python cannot be started.
void start_python();

// The interpreter whose packages are used, and what chose it; for the log.
std::string python_choice();

} // namespace flashcart
