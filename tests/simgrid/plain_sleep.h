// SMPI's macros of one argument hide members of that name.
#undef sleep
