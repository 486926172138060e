# Flags every target of the project shares. Contraction and reassociation would break the bit promise.
add_library(kvring_flags INTERFACE)
target_compile_options(kvring_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                                              -ffp-contract=off -fno-fast-math)
target_include_directories(kvring_flags INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include
                                                  ${CMAKE_CURRENT_SOURCE_DIR}/src)
if(KVRING_SANITIZE)
  target_compile_options(kvring_flags INTERFACE -fsanitize=${KVRING_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_compile_definitions(kvring_flags INTERFACE _GLIBCXX_ASSERTIONS)
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

# kvring_test_headers(NAME): the program NAME links the test libraries and takes their headers precompiled.
function(kvring_test_headers name)
  target_link_libraries(${name} PRIVATE kvring_test_base)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(${name} REUSE_FROM kvring_test_precompiled)
  endif()
endfunction()

# kvring_test(NAME SOURCES a_test.cc [LINKS target...] [SANITIZED]): a program `NAME` of GoogleTest and rapidcheck
# cases, linked with the whole library; its cases become ctest tests.
#
# In a folder of src/ the tests get the label unit.FOLDER and the program joins the target `unit_tests`,
# so that a sanitizer build compiles nothing else (`ctest -L ^unit`, `-L '^unit.transport$'`). In a folder
# of tests/ the label is the folder's name, and with SANITIZED it joins them too, as unit.FOLDER.
function(kvring_test name)
  if(NOT KVRING_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SANITIZED" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  kvring_test_headers(${name})
  target_link_libraries(${name} PRIVATE kvring ${ARG_LINKS} GTest::gtest_main)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
             OUTPUT_VARIABLE folder)
  if(folder MATCHES "^src")
    string(REGEX REPLACE "^src(/([^/]*))?.*" "\\2" layer ${folder})
    set(label unit.${layer})
  else()
    cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME label)
    if(ARG_SANITIZED)
      set(label unit.${label})
    endif()
  endif()
  if(label MATCHES "^unit")
    if(NOT TARGET unit_tests)
      add_custom_target(unit_tests)
    endif()
    add_dependencies(unit_tests ${name})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${label} TIMEOUT 300)
endfunction()
