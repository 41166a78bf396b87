add_library(sw_options INTERFACE)
target_compile_options(sw_options INTERFACE -Wall -Wextra -Wconversion -Wshadow
                                            $<$<BOOL:${SW_WERROR}>:-Werror>)
target_include_directories(sw_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(sw_options INTERFACE Threads::Threads fmt::fmt)

# A full build is mostly the compiler's optimizer: only floors whose loops touch every byte get all
# of it, and tests little.
set(SW_HOT_FLOORS base device kernels comm runtime)
set(SW_HOT_FLAGS "" CACHE STRING "Compiler flags of the floors that do the arithmetic")
set(SW_TEST_FLAGS "" CACHE STRING "Compiler flags of the tests")

# A cold build is mostly the compiler instantiating the libraries' templates anew for every source. So
# SW_JOIN sources are compiled at a time, and the floors without arithmetic and the tests parse the
# libraries' headers once per set of flags. Both are off in the preset `dev`, which so finds a missing
# include and compiles least after a change.
set(SW_JOIN 0 CACHE STRING "How many sources to compile as one, 0: each alone")
option(SW_PRECOMPILE "Parse the libraries' headers once per build" OFF)
if(SW_PRECOMPILE)
  # g++ 12 takes false alarms inside precompiled library code for ours; the other presets keep them on.
  target_compile_options(sw_options INTERFACE -Wno-array-bounds -Wno-restrict
                                              -Wno-stringop-overflow -Wno-stringop-overread)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # g++ collects its garbage each time its heap has doubled; a tenth of the time for 1 GB at most.
    target_compile_options(sw_options INTERFACE --param=ggc-min-expand=1000)
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/empty.cpp "")
  add_library(sw_precompiled OBJECT ${PROJECT_BINARY_DIR}/empty.cpp)
  target_link_libraries(sw_precompiled PRIVATE sw_options)
  target_precompile_headers(sw_precompiled PRIVATE ${CMAKE_CURRENT_LIST_DIR}/precompiled.hpp)
  if(SW_TESTS)
    add_library(sw_test_precompiled OBJECT ${PROJECT_BINARY_DIR}/empty.cpp)
    target_link_libraries(sw_test_precompiled PRIVATE sw_options GTest::gmock)
    target_compile_options(sw_test_precompiled PRIVATE ${SW_TEST_FLAGS})
    target_precompile_headers(sw_test_precompiled PRIVATE
                              ${CMAKE_CURRENT_LIST_DIR}/precompiled_test.hpp)
  endif()
endif()

# sw_join(TARGET ALONE): compiles the sources of TARGET together, all but those in the list ALONE.
function(sw_join target alone)
  if(SW_JOIN)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${SW_JOIN})
    set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# sw_floor(NAME SOURCES a.cpp ... [ALONE b.cpp ...] FLOORS base ... LIBRARIES xxhash ...)
# One static library per floor, named sw_<NAME>. FLOORS stand below; LIBRARIES stay private. ALONE:
# sources never compiled together with others, because they use the same local names.
function(sw_floor name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;FLOORS;LIBRARIES" ${ARGN})
  foreach(floor IN LISTS ARG_FLOORS)
    if(NOT TARGET sw_${floor})
      message(FATAL_ERROR "${name} names the floor '${floor}', which does not stand below it: "
                          "see src/floors.txt")
    endif()
  endforeach()
  add_library(sw_${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  sw_join(sw_${name} "${ARG_ALONE}")
  list(TRANSFORM ARG_FLOORS PREPEND sw_)
  target_link_libraries(sw_${name} PUBLIC sw_options ${ARG_FLOORS} PRIVATE ${ARG_LIBRARIES})
  if(name IN_LIST SW_HOT_FLOORS)
    target_compile_options(sw_${name} PRIVATE ${SW_HOT_FLAGS})
  elseif(SW_PRECOMPILE)
    target_precompile_headers(sw_${name} REUSE_FROM sw_precompiled)
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.hpp)
  target_sources(sw_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src
                                   FILES ${headers})
  set_target_properties(sw_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# sw_test(NAME SOURCES a_test.cpp ... [ALONE b_test.cpp ...] FLOORS comm ... LIBRARIES ...
#         [TIMEOUT seconds] [WHOLE])
# One GoogleTest program per floor, <NAME>_test; every test has a deadline (60 s unless said).
# WHOLE: the program is one test of ctest, where starting it costs more than its tests do.
function(sw_test name)
  cmake_parse_arguments(ARG "WHOLE" "TIMEOUT" "SOURCES;ALONE;FLOORS;LIBRARIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  math(EXPR timeout "${ARG_TIMEOUT} * ${SW_TIMEOUT_FACTOR}")
  add_executable(${name}_test ${ARG_SOURCES} ${ARG_ALONE})
  sw_join(${name}_test "${ARG_ALONE}")
  list(TRANSFORM ARG_FLOORS PREPEND sw_)
  target_link_libraries(${name}_test PRIVATE sw_options ${ARG_FLOORS} ${ARG_LIBRARIES}
                                             GTest::gmock GTest::gtest_main)
  target_compile_options(${name}_test PRIVATE ${SW_TEST_FLAGS})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name}_test PRIVATE SW_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                                  SW_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(SW_PRECOMPILE)
    target_precompile_headers(${name}_test REUSE_FROM sw_test_precompiled)
  endif()
  if(ARG_WHOLE)
    add_test(NAME ${name} COMMAND ${name}_test --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout})
    return()
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT 120
                       PROPERTIES TIMEOUT ${timeout})
endfunction()
