#pragma once

#include <string>

namespace penstock {

// Better before a run than after an hour of it. Both throw Error, with `way_out` at the end.

// That write_output() could write a file at `path`; "-" is a stream.
void require_writable_file(const std::string& path, const std::string& way_out);

// That files could be made in the folder `path`, which does not have to be there yet.
void require_writable_folder(const std::string& path, const std::string& way_out);

}  // namespace penstock
