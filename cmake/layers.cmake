# Flags every target of the project shares. Contraction and reassociation would break the bit promise.
add_library(kvring_flags INTERFACE)
target_compile_options(kvring_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                                              -ffp-contract=off -fno-fast-math)
target_include_directories(kvring_flags INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include
                                                  ${CMAKE_CURRENT_SOURCE_DIR}/src)
if(KVRING_SANITIZE)
  target_compile_options(kvring_flags INTERFACE -fsanitize=${KVRING_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(kvring_flags INTERFACE -fsanitize=${KVRING_SANITIZE})
endif()

# kvring_layer(NAME SOURCES a.cc b.cc [LINKS target...]): the objects of one src/ folder. All layers
# together are the library `kvring`.
function(kvring_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(kvring_${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(kvring_${name} PUBLIC kvring_flags ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY KVRING_LAYERS kvring_${name})
endfunction()

# kvring_test(NAME SOURCES a_test.cc [LINKS target...]): a GoogleTest program `NAME`, linked with the
# whole library; its cases become ctest tests.
function(kvring_test name)
  if(NOT KVRING_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvring ${ARG_LINKS} kvring_flags GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60)
endfunction()
