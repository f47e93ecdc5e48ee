# spyre_resource(TARGET NAME FILE...): the bytes of text files as the functions spyre::resources::<name>(), one for each file
# (page.html becomes page_html), declared in the header NAME.h that the target can include.
#
# Included it defines the function; run as a script (cmake -P) it writes one of the two files.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(header "// Made by cmake/SpyreResource.cmake.\n#pragma once\n\n#include <string_view>\n\nnamespace spyre::resources {\n\n")
  set(source "// Made by cmake/SpyreResource.cmake.\n#include <string_view>\n\nnamespace spyre::resources {\n\n")
  foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "[^a-zA-Z0-9]" "_" name ${name})
    file(READ ${file} bytes HEX)
    string(LENGTH "${bytes}" length)
    math(EXPR length "${length} / 2")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
    # A literal of 32 bytes a line: compilers bound the length of one.
    string(REGEX REPLACE "((\\\\x[0-9a-f][0-9a-f])(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?)" "\"\\1\"\n" bytes "${bytes}")
    string(APPEND header "std::string_view ${name}();\n")
    string(APPEND source "std::string_view ${name}() {\n  return {\n${bytes}, ${length}};\n}\n")
  endforeach()
  file(WRITE ${OUTPUT}.h "${header}\n}  // namespace spyre::resources\n")
  file(WRITE ${OUTPUT}.cc "${source}\n}  // namespace spyre::resources\n")
  return()
endif()

set(SPYRE_RESOURCE_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(spyre_resource target name)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/resources/${name})
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  add_custom_command(
    OUTPUT ${output}.h ${output}.cc
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DOUTPUT=${output} -P ${SPYRE_RESOURCE_SCRIPT}
    DEPENDS ${files} ${SPYRE_RESOURCE_SCRIPT}
    COMMENT "Embedding ${name}" VERBATIM)
  target_sources(${target} PRIVATE ${output}.cc ${output}.h)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/resources)
endfunction()
