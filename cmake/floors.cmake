# SW_FLOORS: the floors of src/floors.txt, from the ground up.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/floors.txt)
file(STRINGS ${PROJECT_SOURCE_DIR}/src/floors.txt levels REGEX "^[a-z]")
string(REPLACE " " ";" SW_FLOORS "${levels}")

# Adds the folder of every floor that has one here.
macro(sw_add_floors)
  foreach(floor IN LISTS SW_FLOORS)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${floor}/CMakeLists.txt)
      add_subdirectory(${floor})
    endif()
  endforeach()
endmacro()
