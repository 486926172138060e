// The text of catalogue/machines.json, compiled in: the program finds it wherever it is installed.
#pragma once

namespace kvring {

extern const char* const kCatalogueText;

}  // namespace kvring
