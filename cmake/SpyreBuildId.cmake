# The build id: what a plugin must have been built from to be loaded. It covers everything that decides the binary
# interface between the core library and a plugin: the headers of the core rooms, the compiler and its flags.
#
# Included by the top CMakeLists.txt it declares the target spyre_build_id; run as a script (cmake -P) by that target
# before every build, it writes the header build_id_value.h when, and only when, the id has changed.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(all "")
  foreach(room ${ROOMS})
    file(GLOB_RECURSE headers ${SOURCE_DIR}/${room}/*.h)
    list(SORT headers)
    foreach(header ${headers})
      file(SHA256 ${header} hash)
      file(RELATIVE_PATH header ${SOURCE_DIR} ${header})
      string(APPEND all "${header} ${hash}\n")
    endforeach()
  endforeach()
  string(SHA256 hash "${all}${TOOLCHAIN}")
  string(SUBSTRING ${hash} 0 16 hash)
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "// Made by cmake/SpyreBuildId.cmake. Include it in .cc files only, and give each of them this folder:
// set_source_files_properties(x.cc PROPERTIES INCLUDE_DIRECTORIES \$\{SPYRE_GENERATED_DIR\})
#pragma once

#define SPYRE_BUILD_ID \"@VERSION@-@hash@\"
")
  return()
endif()

set(SPYRE_GENERATED_DIR ${CMAKE_BINARY_DIR}/generated)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(build_id_command
    ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR}/src "-DROOMS=${SPYRE_CORE_ROOMS}"
    -DOUTPUT=${SPYRE_GENERATED_DIR}/base/build_id_value.h -DVERSION=${PROJECT_VERSION}
    "-DTOOLCHAIN=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} ${SPYRE_SANITIZE}"
    -P ${CMAKE_CURRENT_LIST_FILE})
add_custom_target(spyre_build_id COMMAND ${build_id_command} BYPRODUCTS ${SPYRE_GENERATED_DIR}/base/build_id_value.h VERBATIM
                  COMMENT "Checking the build id")
